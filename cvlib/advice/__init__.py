"""Which line to take: the zoo of named variates, what lines leave and cost, the choice."""
