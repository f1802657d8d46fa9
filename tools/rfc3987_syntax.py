"""In place of a package of this name, which jsonschema imports where it is there, for addresses
with letters beyond ASCII: that takes 1.7 s of each pytest, worker and notebook tool, and nothing
in a notebook's schema asks for it. jsonschema does without what cannot be imported."""

raise ImportError("left out: tools/rfc3987_syntax.py says why")
