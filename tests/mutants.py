"""Bugs that some check must catch: name | place | old | new | check, as harness.py says.

A heading has the name of a list, and the files whose tests must see its bugs. A bug begins at the
margin, and a line that does not goes on with it; \\n is a new line of code. The check of an
adapter's bug is the model of test_adapters.py that sees it.
"""

import re

BUGS = r"""
# core: test_lines test_prices
RP1's pull loses the noise | _GaussianFamily.pull1 |
  np.multiply(self.by_row(u), draw.of('eps_by_column'), out=out[..., self.dim:]) |
  out[..., self.dim:] = self.by_row(u) | test_exact_means[linear-Gaussian-False]
a word overwrites the one before | estimators.evaluate | G += rows | G[...] = rows | test_arithmetic
what stood in the array shows | estimators.evaluate | G[...] = 0.0 | | test_arithmetic
what is kept forgets the point | draws.kept | (method, getattr(self, 'key', self), *where) |
  (method, getattr(self, 'key', self)) | test_exact_means[student-Gaussian-True]
score forgets the gradient of the normaliser | _GaussianFamily.score |
  path - self.entropy_grad(draw.w)[..., None, :] | path | test_exact_means[linear-Gaussian-False]
entropy without its 1 | _GaussianFamily.entropy | 1 + LOG_2PI | LOG_2PI |
  test_closed_form_of_prior_and_entropy
L transposed in the sample | Gaussian.times | L.swapaxes(-1, -2) | L | test_draws
L for L^T | Gaussian.times_t | L | L.mT | test_exact_means[linear-Gaussian-False]
RP2 without the factor s_j | Gaussian.svd | s[..., None, :] / (s[..., :, None] + s[..., None, :])
  | 1 / (s[..., :, None] + s[..., None, :]) | test_badly_conditioned
sigma for |sigma| in a diagonal RP2 | DiagonalGaussian.z2 | np.abs(draw.factor) | draw.factor |
  test_exact_means[linear-DiagonalGaussian-False]
RP2 at the points of RP1 | RP2 | 'z2' | 'z1' | test_own_model_at_samples
a batch stands for N times its size | look_up | model.N / rows.shape[-1] | model.N |
  test_batches[poisson-DiagonalGaussian]
one batch for all runs | draw | rng.integers(model.N, size=shape) | rng.integers(model.N,
  size=shape[len(runs) :]) + np.zeros(shape, int) | test_draws
own model forgets N | OwnData.function | model.N * model.log_lik(z, one) | model.log_lik(z, one) |
  test_batches[curved-Gaussian]
own model's batch stands for N times its size | OwnData.function | model.N / B | model.N |
  test_batches[curved-DiagonalGaussian]
own model: the same Hessian for all samples | Own.one_hessian |
  z.shape[-2] != 1 or not self.q.full | not self.q.full | test_own_model_on_drawn_data
own model: a square Hessian for a diagonal q | Own.one_hessian |
  z.shape[-2] != 1 or not self.q.full | z.shape[-2] != 1 | test_diagonal_family_on_all_data
all of a Hessian's columns | COLUMNS | 64 | 10**6 | test_diagonal_family_builds_no_square_matrix
Hessian times L^T, all data | Gaussian.gram | L[..., None, :, :] | L.mT[..., None, :, :] |
  test_exact_means[linear-Gaussian-False]
Hessian's diagonal of the first block alone | Family.hess_L |
  np.diagonal(times(unit), first, -2, -1) | np.diagonal(times(unit), 0, -2, -1) |
  test_blocks_of_columns
closed form with sd for variance | GLMData.integrate | cases.variance(draw) |
  cases.variance(draw) ** 0.5 | test_exact_means[poisson-Gaussian-False]
over_all_data changes nothing | OnData.sees_all | self.all_data or draw.index is None |
  draw.index is None | test_glm
Taylor in z: value loses 1/2 | TaylorZ.value | 0.5 * np.vecdot(both, away) | np.vecdot(both, away) |
  test_single_draws[curved-Gaussian-False]
Taylor in z: value from the slope at mu alone | TaylorZ.value | self.slope(draw, where) |
  self.f.slope(draw, self.centre) | test_own_model_at_mu_on_all_data
Taylor in z: slope at z, own model | TaylorZ.grad | self.steepness(draw) |
  self.f.slope(draw, where) | test_own_prior_at_mu
bias up to 1e-3 passes | integrands.ROUNDING | 32 | 1e13 | test_judged
bound: xi without the variance | Bound.coefficients | m**2 + v | m**2 |
  test_single_draws[offset-Gaussian-False]
Taylor in x: value loses 1/2 | TaylorX.value | 0.5 * d2 * (eta - m) | d2 * (eta - m) |
  test_batches[poisson-Gaussian]
Taylor in x: kappa lost in the value at the mean | TaylorX.value | kappa * dy * eta |
  kappa * dy * (eta - m) | test_exact_means[linear-DiagonalGaussian-True]
slope in x: third derivative kept | TaylorXSlope.word | "taylor_x_slope", 0.0 |
  "taylor_x_slope", 1.0 | test_single_draws[poisson-DiagonalGaussian-False]
slope in x: taken for a gradient | TaylorXSlope | False | True | test_judged
RB: the mean of eps is zero | OfEta.average | d1 * away / np.where(v > 0, v, np.inf) |
  0 * d1 * away | test_single_draws[linear-DiagonalGaussian-False]
RB: divided by a variance of zero | OfEta.average | np.where(v > 0, v, np.inf) | v | test_origin
v without Sigma: |x|^2 | Cases.variance | self.x_factor(draw, where) | np.broadcast_to(self.x,
  self.x_factor(draw, where).shape) | test_exact_means[poisson-DiagonalGaussian-False]
QD: nodes for the narrowest data point | Likelihood._nodes | max(sd.max(), 1e-300) |
  max(sd.min(), 1e-300) | test_quadrature[1e-09]
QD: the strip ignored | rule | min(0.8 * strip, np.sqrt(2 * digits)) | np.sqrt(2 * digits) |
  test_quadrature[1e-09]
by hand: all data seen as drawn | OfEta.cases | self.sees_all(draw) | draw.index is None |
  test_exact_means[offset-DiagonalGaussian-True]
sign of the curvature | _logistic_fast | s * (s - 1) | s * (1 - s) | test_hand_written_derivatives
Jaakkola's lambda twice too large | _logistic_bound | 4 * safe | 2 * safe | test_bound
Poisson: v / 2 lost | _poisson_expected | m + v / 2 | m | test_exact_means[poisson-Gaussian-False]
precision 1 / sd in the linear model | _normal_fast | (y - eta) / sd**2 | (y - eta) / sd |
  test_hand_written_derivatives
covariances over n - 1 | GLM.data_moments | n[:, None, None] | np.maximum(n - 1, 1)[:, None, None] |
  test_exact_means[logistic-Gaussian-True]
second moments for covariances | _spreads | X - own.T @ x | X |
  test_exact_means[logistic-Gaussian-True]
# models: test_own_models
prior's mean forgotten | GaussianPrior.__call__ | z - self.mean | z | test_offset_and_prior
offset forgotten in the rows | glm._rows | eta + offset[0] | eta | test_offset_and_prior
offset forgotten in the data | GLM.__init__ | (X, y) if offset is None else (X, y, offset) |
  (X, y) | test_offset_and_prior
whole data never tried | Model._check_functions | [((3,), (3,)), ((3, 1), (n,)), ((2, 3, 1), (n,)),
  ((2, 3, 4), (2, 3, 1))] | [((3,), (3,)), ((2, 3, 4), (2, 3, 1))] | test_row_contract
-inf passes for a number | _finite | ~np.isfinite(got) | np.isnan(got) | test_support
a strip is believed | checks._by_parts | 1e-06 * size | 0.1 * size |
  test_what_a_likelihood_promises_is_tried
slopes never compared | checks.differences |
  believed & ~(np.abs(along - fine) <= 1e-2 * np.abs(fine) + 10 * rounding) |
  0 * believed > (np.abs(along - fine) <= 1e-2 * np.abs(fine) + 10 * rounding) | test_slopes
exact: prior drawn to its mean in L too | _prior | np.zeros(q.D - q.dim) | q.by_row(mean) |
  test_exact_with_prior_and_offset
exact: sign of the prior's slope | term_gradients | -precision | precision | test_unreached_optimum
L-BFGS stops early | _by_lbfgs | {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-9} |
  {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-9, "gtol": 1e-5} | test_slope_at_the_optimum
a d x d matrix for a diagonal q | DiagonalGaussian.gram |
  c @ X2[..., 0, :, :] if X.shape[-3] == 1 else np.vecmat(c, X2) |
  np.diagonal((c[..., None] * X).mT @ X, axis1=-2, axis2=-1) | test_diagonal_builds_no_matrix
L-BFGS begins where natural steps broke | exact.optimum | _by_lbfgs(model, q, start) |
  _by_lbfgs(model, q, w) | test_natural_steps_that_break
# parameters: test_parameters
the log-Jacobian forgotten | _named_prior | log_prior(p) + stretch | log_prior(p) |
  test_a_named_model_is_the_one_by_hand
the last log-Jacobian alone | Parameters.mapped | stretch + xp.sum(xp.reshape(log_jacobian, (*lead,
  -1)), -1) | 0 * stretch + xp.sum(xp.reshape(log_jacobian, (*lead, -1)), -1) |
  test_every_shape_lies_in_its_place
entries named by columns | labels | np.ndindex(*shape) | np.ndindex(*shape[::-1]) |
  test_a_compiled_model_has_names
a simplex of one share | Constraint.__call__ | 1 + self.fewer | 1 | test_declarations_that_are_wrong
a Gaussian prior wrapped | Model._of_z | return rows, log_prior | whole = lambda p:
  log_prior(anp.concatenate([p['beta'], p['t']], -1))\nreturn rows, partial(_named_prior, whole,
  self.parameters) | test_names_are_taken_in_any_way
# optimize: test_loop
momentum without 1 - beta | momentum.step | (1 - self.beta) * g | g |
  test_momentum_takes_the_steps_of_autograds_sgd
adam: bias of m left | adam.step | m / (1 - b1_t) | m | test_adam_takes_the_steps_of_autograds_adam
average divides by one too many | Plan.step | (moved - state.mean) / count |
  (moved - state.mean) / (count + 1) | test_a_run_that_leaves_stays_where_it_was
v0 not of ELBO / N | bayes.weights | self.v0 * N**2 | self.v0 | test_weight_rules_are_their_formulas
mean without variates is a sum | mean | return share @ h | return h.sum(-2) |
  test_no_variates_and_no_weights_are_the_same
exact gradient not of ELBO / N | Plan.gradient | exact.gradient(self.model, self.q, state.w) /
  self.model.N | exact.gradient(self.model, self.q, state.w) |
  test_a_rule_of_ones_own_gets_what_a_natural_step_needs
one rate for all runs | Plan.rate | lr[..., None] | lr.flat[0] |
  test_a_rate_may_belong_to_a_run_or_to_a_step
a hook a step early | _ascend | t % k == 0 | (t + 1) % k == 0 | test_steps_are_the_loop
a hook's plan is ignored | _answer | _fitted(*answer), answer[1] | _fitted(*answer), plan |
  test_a_hook_can_change_the_plan_and_the_state
records of 1000 MB | RECORD | 100e6 | 1000e6 | test_records_are_thinned_to_a_hundred_megabytes
# natural: test_natural_steps
L for its transpose in the curvature | Gaussian.curvature | L.mT | L | test_affine_invariance
half of the square lost | Gaussian.change | (I + B @ B) / 2 | B @ B | test_update_of_the_precision
K L for L K | Gaussian.compose | np.matmul | lambda L, K: K @ L | test_reach
indefinite and yet finite | DiagonalGaussian.change | np.where(B > 0, B, np.nan) | np.abs(B) |
  test_indefinite
the old factor in the step of mu | newton | rho * q.times_t(K, c[..., None, :])[..., 0, :] |
  rho * c | test_batched
gradient of ELBO / N for that of the ELBO | natural.step | N * q.times_t(factor, g[..., None,
  :d])[..., 0, :] | q.times_t(factor, g[..., None, :d])[..., 0, :] | test_fixed_point
a rate that never falls | falling.__call__ | min | max | test_rate
the optimum after one step | exact.optimum | np.abs(g).max() < SETTLED | np.abs(g).max() < 1e9 |
  test_the_best_q_is_found_in_few_steps
# snapshots: test_passes
snapshot: about mu for the older weights | TaylorZ.grad | draw.at(self.centre) | draw.at("mu") |
  test_lines[poisson-DiagonalGaussian-one each]
snapshot: own model's drawn data expanded afresh | _expand | kind(atom, at, order) |
  kind(atom, at if isinstance(atom, OfEta) else "mu", order) |
  test_lines[curved-DiagonalGaussian-one each]
every part is the first | _again | root.offset + address(a) - address(root) | root.offset |
  test_parts[Gaussian]
a byte wraps in a pass | passes._part | wide(_here(a)) | _here(a) | test_small_numbers
bound: touches at mu | glm._totals | eta**2 + v | eta**2 | test_mean_zero[logistic-Gaussian]
own model: columns of the Hessian mixed | density._totals | np.eye | np.tri |
  test_lines[curved-Gaussian-one each]
first order with a curvature, own model | TaylorZ.along | self.order == 1 | False |
  test_lines[curved-Gaussian-one each]
of second order, whatever is asked | Noisy.refreshed | self.wants or Wants(2) |
  (self.wants or Wants())._replace(order=2) | test_every
numbers keep the first part alone | passes.total | (a + b for a, b in zip(found, new)) |
  (a + b if np.ndim(a) else a for a, b in zip(found, new)) | test_parts[Gaussian]
a cluster that is never left | dask.on | try:\n yield\nfinally:\n passes.mapper.reset(token) |
  yield\npasses.mapper.reset(token) | test_the_cluster_is_left
what the first line wants | wanted | Wants(*map(max, zip(*each))) | each[0] | test_wants
# parabola: test_passes
no expectation of the value | Parabola.height | self.model.likelihood.mean(m, v, y) |
  self.model.likelihood.phi(m, y) | test_lines[offset-Gaussian-one each]
value loses 1/2 | TaylorEta.psi | 0.5 * d2 * away | d2 * away | test_lines[offset-Gaussian-one each]
the bound's sums for the mean's | Stored.sums | draw.snapshot.parabolas.get(self.word) |
  draw.snapshot.parabolas['bound' if self.word == 'parabola' else self.word] |
  test_renewed_in_the_loop
values of the middle node | Likelihood.mean | self.phi(eta, y) @ weights | self.phi(m, y[..., 0]) |
  test_lines[offset-Gaussian-one each]
# combine: test_combine
sign of the weights | best_weights | -scale | scale | test_rules_are_least_squares
moments divided by M D, not M | moments | np.vecdot(C, h) / M | np.vecdot(C, h) / (M * D) |
  test_nearly_equal_variates_are_told_apart
regulariser twice as large | combine.bayes_weights | D | 2 * D | test_rules_are_least_squares
prior of h, c forgotten | posterior_moments | T_hc + M * Ch | M * Ch | test_rules_are_least_squares
new samples count gamma B | follow | new.M | gamma * new.M | test_moving_moments_by_brute_force
start with one sample seen | combine.start | Moments(np.zeros((*runs, L, L)), np.zeros((*runs, L)),
  0.0) | Moments(np.zeros((*runs, L, L)), np.ones((*runs, L)), 1.0) |
  test_zero_weights_before_the_first_step
mean over samples is a sum | mean | 1 / h.shape[-2] | 1.0 | test_combine
combine subtracts | combine | h + g.reshape(*g.shape[:-2], M, D) |
  h - g.reshape(*g.shape[:-2], M, D) | test_combine
ridge judged on its own samples | ridge_weights | moments(h[..., ~out, :], C[..., ~out, :]) |
  moments(h[..., out, :], C[..., out, :]) | test_ridge_weights
variates not scaled | best_weights | 1 / np.sqrt(np.where(size2 > 0, size2, np.inf)) |
  1.0 + 0 * size2 | test_bad_scales_with_a_regulariser
coordinates mixed | combine | a[..., None, :] * C | a[..., None, ::-1] * C | test_combine
# regression: test_regression
ridge on the constant too | _design | 0.0 | 1.0 | test_the_baseline_by_refits
ridge doubled below d draws | _design | lam * np.eye(B) | 2 * lam * np.eye(B) |
  test_hat_values_are_refits
hat value forgotten | _fit | r / (1 - np.vecdot(X, K_X)[..., None]) | r | test_hat_values_are_refits
a group counted once in the mean | regress | group * (K_X.mT @ Q) | K_X.mT @ Q |
  test_in_pairs_only_the_odd_part_is_regressed
rows use the fit that knows draw m | _without | np.concatenate([own] * group, -3) |
  0 * np.concatenate([own] * group, -3) | test_the_baseline_in_pairs
gauge with each draw's own square | gauge | np.vecdot(total, total) - own_c |
  np.vecdot(total, total) | test_the_gauge_is_unbiased
shrinkage upside down | shrinkage | seen.residual / signal | signal / seen.residual |
  test_the_ridge_of_a_gauge_is_noise_over_signal
diagonal rows not turned back | diagonal.each | Fitted(c.mT, A.mT) | Fitted(c.mT, A) |
  test_a_diagonal_q_regresses_each_coordinate_on_its_own_draw
diagonal slopes of a mirrored draw | diagonal.each | _coordinates(e, G) |
  _coordinates(e[..., ::-1], G) | test_a_diagonal_q_regresses_each_coordinate_on_its_own_draw
baseline invents what q does not feel | baseline | 1e-7 * root.max(-1, keepdims=True) | -1 |
  test_the_baseline_of_a_softmax
# ensemble: test_ensemble test_definitions
AQ knows partners | regression._fitted | group=draw.group | | test_rows_of_all_quadratics_are_refits
AQ: no ridge is the usual ridge | regression._fitted |
  (draw.q.dim if draw.q.full else 1) / 10 if ridge is None else ridge |
  ridge or (draw.q.dim if draw.q.full else 1) / 10 | test_a_gaussian_target_in_one_natural_step
RPS: the transpose with L^T for L^-T | _symmetrised | q.outer(away, G) | q.outer(draw.eps, u) |
  test_rotations_and_means
a mean of the ELBO, not ELBO / N | Noisy.gradient | g / N | g | test_a_step_takes_the_mean_at_once
LB: partners are known | linear_baseline | draw.group | 1 | test_the_linear_baseline_for_switches
LB: the usual ridge, whatever is asked | linear_baseline | baseline(score, f,
  draw.q.fisher(draw.w), ridge, draw.group) | baseline(score, f, draw.q.fisher(draw.w),
  0.5, draw.group) | test_the_linear_baseline_by_refits
Fisher of a switch: sd for variance | Bernoulli.fisher | expit(w) * expit(-w) |
  np.sqrt(expit(w) * expit(-w)) | test_fisher_of_discrete_families
Fisher of independent classes | Categorical.fisher | p[..., None] * np.eye(self.classes) - p[..., :,
  None] * p[..., None, :] | p[..., None] * np.eye(self.classes) | test_fisher_of_discrete_families
at rest by the slope alone | at_rest | slope & (s * seen.curvature <= (found.A**2).sum()) | slope |
  test_steps_of_a_diagonal_q_are_their_loop
the regression forgets the entropy | Regressed.step | G + e | G |
  test_a_diagonal_q_rests_at_a_gaussian_posterior
the ridge of the step itself | Regressed.step | regression.diagonal(regression.regress)(e, G + e,
  ridge) | regression.diagonal(regression.regress)(e, G + e, regression.shrinkage(seen, 1)) |
  test_steps_of_a_diagonal_q_are_their_loop
rho as large as rest allows | Regressed.step | min(1 / max(s, 1), self.most) | 1 / max(s, 1) |
  test_steps_of_a_diagonal_q_are_their_loop
# coupled: test_coupled
a batch for each is taken for one for all | Sampling.shared |
  self.batch is not None and not self.each | self.batch is not None | test_pairs_share_their_data
others: one left out | Draw.others | self.M - self.group | self.M - 1 | test_leave_one_pair_out
pairs with a partner of its own data | draw | [index] * same | [index, index[::-1]] |
  test_pairs_share_their_data
pairs that count as samples | Noisy.gradient | d.group > 1 | d.group > 2 |
  test_weights_count_what_is_independent
one left out, not its partner | Draw.others | (x.sum(-2, keepdims=True) - np.concatenate([own] *
  self.group, -2)) / free | (x.sum(-2, keepdims=True) - x) / (self.M - 1) | test_leave_one_pair_out
a baseline that is added | LOO | f[..., None] - draw.others(f[..., None]) |
  f[..., None] + draw.others(f[..., None]) | test_vargrad
DisARM without its half | DisARM | (f - np.roll(f, draw.M // 2, -1))[..., None] / 2 |
  (f - np.roll(f, draw.M // 2, -1))[..., None] | test_means_over_pairs_of_switches
half of a switch's base not turned | Bernoulli.mirror | 1 - second | second |
  test_partners_have_the_law_and_the_opposite_place
Sobol's polynomial read from its other end | _directions | poly >> (degree - k).clip(0) & 1 |
  poly >> k & 1 | test_sobol_s_points_are_scipy_s
Sobol's earlier numbers not doubled | _directions | v[i - k] << k | v[i - k] |
  test_sobol_s_points_are_scipy_s
Sobol's points without Gray's code | _marks | (n ^ n >> 1) >> i & 1 | n >> i & 1 |
  test_sobol_s_points_are_scipy_s
# families: test_families test_nongaussian test_own_families
GR as the paper prints it: the score of q | GR | score="base_score" |
  score="score" | test_means_by_quadrature
gamma: a factor 2 in the spread's derivative | Gamma.moments_grad | 2 * draw.factor |
  1 * draw.factor | test_the_package_s_families_are_what_they_say
gamma: scale taken for rate | Gamma._sample | _log_gamma(rng, a, M) - w[..., None, self.dim :] |
  _log_gamma(rng, a, M) + w[..., None, self.dim :] | test_moments_and_samples
gamma: the density of x | Gamma.log_density | a * (log_b + z) | a * (log_b + z) - z | test_density
gamma: plain sampling, which underflows | _log_gamma | np.log(rng.standard_gamma(shape + 1)) -
  rng.standard_exponential(shape.shape) / shape | np.log(np.maximum(rng.standard_gamma(shape),
  1e-300)) - 0 * rng.standard_exponential(shape.shape) / shape | test_sampling
gamma: the mean of e^z left out of the prior | Gamma.cross_grad | a * polygamma(1, a) * av - bv |
  a * polygamma(1, a) * av - 1 | test_means_by_quadrature
Bernoulli: z for 1 - z | Bernoulli.transform | self.behind(w, eps) > 0 | self.behind(w, eps) < 0 |
  test_discrete_by_enumeration
Bernoulli: closed form in p, not in the logit | Bernoulli.cross_grad | expit(w) * expit(-w) |
  expit(w) | test_discrete_by_enumeration
Bernoulli: variance's derivative loses a half | Bernoulli.moments_grad |
  s * (expit(-draw.w) - p) / 2 | s * (expit(-draw.w) - p) |
  test_the_package_s_families_are_what_they_say
# outside_families: test_own_families test_families
a family of the reader's is believed | base.check_fit |
  not q.held | False |
  test_what_a_family_says_is_tried[moments]
the score at the base sample | Family.score | draw.z | draw.eps[..., :self.dim] |
  test_the_package_s_families_are_what_they_say
the entropy's gradient downhill | Family.entropy_grad | -self.cross_grad(w, w) |
  self.cross_grad(w, w) | test_the_package_s_families_are_what_they_say
E log q rises with the entropy | Family.cross_grad | -self.entropy_grad(w) | self.entropy_grad(w) |
  test_closed_forms_are_given_or_refused
slopes move the spread | Family.chain | slope[..., None, :] * dm | slope[..., None, :] * ds |
  test_the_package_s_families_are_what_they_say
a mean that nobody said | Family._said | moment is None | False | test_moments_are_given_or_refused
every family knows its moments | Family.__init_subclass__ | cls.moments is not Family.moments |
  True | test_incomplete_families
parts packed in the wrong order | Family.pack | [np.broadcast_to(a, shape) for a in arrays] |
  [np.broadcast_to(a, shape) for a in arrays[::-1]] | test_weights
arguments without their names | Family.__repr__ | f'{p.name}=' * (p.default is not p.empty) | '' |
  test_families_are_told_apart_by_all_arguments
a prior of the other kind | check_fit | lives != q.smooth | False |
  test_a_prior_and_a_q_of_two_kinds_are_refused
# relaxations: test_nongaussian
REBAR: coupling swapped between z = 0 and z = 1 | Bernoulli.zeta_given_z | sign * noise |
  -sign * noise | test_relaxed_means_by_quadrature
REBAR: derivative through the conditional draw forgotten | _Discrete.pull_coupled |
  self.given(draw, True)[1] | 0 * self.given(draw, True)[1] | test_relaxed_means_by_quadrature
REBAR: score of zeta for the score of z | GR |
  Route("zeta", score="score", pull="pull_coupled") |
  Route("zeta", score="zeta_score", pull="pull_coupled") | test_extreme_logits_are_finite
categorical: the clocks remember | Categorical.zeta_given_z | np.logaddexp | np.maximum |
  test_conditional_draw_of_a_class
relaxation without its temperature | Relaxed.function | draw.q.squash(zeta, self.tau) |
  draw.q.squash(zeta, 1.0) | test_functions_of_one_name_stay_apart
# zoo: test_zoo
a term forgotten | catalogue._sums | [data, prior, variational, data + prior, data - variational,
  prior - variational] | [data, prior, variational, data + prior, prior - variational] |
  test_complete[student-DiagonalGaussian-True]
the bound forgotten | APPROXIMATIONS | {'': lambda f: f, 'taylor_z': taylor_z, 'bound': bound,
  'taylor_x': taylor_x, 'taylor_x_slope': taylor_x_slope, 'relax': relax} | {'': lambda f: f,
  'taylor_z': taylor_z, 'taylor_x': taylor_x, 'taylor_x_slope': taylor_x_slope, 'relax': relax} |
  test_names
twins kept | _without_copies | any(close) and not c.name | False |
  test_complete[logistic-Gaussian-True]
closed form has noise from both | Variate.noises | method.samples and atom != whole |
  atom != whole | test_means_and_noises[linear-DiagonalGaussian-True]
signs lost | spanned | line.parts.get(part, 0.0) | abs(line.parts.get(part, 0.0)) |
  test_means_and_noises[logistic-Gaussian-True]
expansions in x pass over the data | Variate.passes_over_data | not moments and any(ALL in way for
  way in self.pair) | any(ALL in way for way in self.pair) | test_records
slopes mixed | legal | not line.is_control_variate | False | test_complete[logistic-Gaussian-True]
# answers: test_answers
the second order's constant forgotten | stein | 2.0 * (i == j) | 0.0 | test_a_gaussian_has_no_error
coordinates about zero | standardised | (z - m) @ Vt.T / S | z @ Vt.T / S | test_stein_s_identity
the evidence by Stein's variates of p | Found.evidence | -lot.e | lot.score |
  test_a_linear_model_is_answered_exactly
no weights in the regression | intercept | np.sqrt(w / w.sum())[:, None] |
  np.sqrt(0 * w + 1 / len(w))[:, None] | test_the_jackknife_is_made_of_refits
the bias doubled | intercept | v @ y + bias | v @ y - bias | test_the_jackknife_is_made_of_refits
the smaller of two errors | intercept | np.max | np.min | test_the_jackknife_is_made_of_refits
a slow chain believed | _doubts | left / at.time | left | test_several_chains
always the highest order | answer | x[1].missed + 1e-300 | 0 * x[1].missed + 1 |
  test_the_order_is_the_one_that_folds_prefer
no fold left out | _missed | b - Q[i].T @ y[i] | b | test_the_order_is_the_one_that_folds_prefer
chains run into each other | correlation | x.reshape(chains, n, -1) |
  x.reshape(n, chains, -1).swapaxes(0, 1) | test_several_chains
an event that was not seen is certain | answer | np.where(unseen, 1.5 / left, best.se) | best.se |
  test_rare_events_are_never_certain
an unmet tail not named | _doubts | MET | 0.1 * MET | test_doubts_of_the_weights
quantiles of the weights alone | _tails | inverse(F, share, wanted + sign * se) |
  inverse(F, w / w.sum(), wanted + sign * se) | test_quantiles
the law of the draws about the centre forgotten | lots.at | np.logaddexp(extra, shift) |
  np.logaddexp(extra, extra) | test_a_rare_event_is_looked_for
heavy tails believed | _doubts | k > HEAVY | k > 2 * HEAVY | test_doubts_of_the_weights
weights not smoothed | smoothed | 1 / 3 | 9 | test_smoothing_is_that_of_arviz
f without a variance believed | _rare | k_f > WIDE | k_f > 0.7 | test_rare_events_are_never_certain
all points of Student's t | spread | u[..., :1] < heavy | u[..., :1] < 1 |
  test_the_law_of_the_points
all opposites forgotten | spread | -e | e | test_points_are_pairs_in_independent_scramblings[100]
points that weigh nothing stay far out | _lot | np.where(counts, z, z[w.argmax()]) | z |
  test_the_law_of_the_points
weights turned round | _lot | smoothed(log) | smoothed(-log) | test_what_is_shown
the evidence in units of the mean weight | Found.evidence | lot.log.max() | lot.log.mean() |
  test_a_linear_model_is_answered_exactly
an sd for a variance | described | of_square / (2 * np.maximum(sd, 1e-300)) | of_square |
  test_the_errors_of_a_table
a quantile without its variates | described | to_quantiles(share, np.array(rest)) |
  to_quantiles(at.w / at.w.sum(), np.array(rest)) | test_the_errors_of_a_table
# choose: test_choose
covariances over n | Pilot._look | R * units / (R * units - 1) | 1.0 | test_noise_of_every_subset
neighbours for partners | Pilot._look | G[:, own].reshape(R, len(own), size, -1, D).mean(2) |
  G[:, own].reshape(R, len(own), -1, size, D).mean(3) | test_squared_length_of_a_step
leaving one out taken for independent samples | Pilot._look | any(word.rows or word.pull for word in
  words) | False | test_leaving_one_out_makes_a_step_one_unit
weights tried where they were fitted | Pilot.weights |
  (of or self.K)[s.base].mean(-3, keepdims=True)[..., ::-1, :, :, :] |
  (of or self.K)[s.base].mean(-3, keepdims=True) | test_noise_of_every_subset
the slope with its own noise | Pilot.slope2 | g @ g - self.noise(quiet) / self.n | g @ g |
  test_slope_of_few_draws
kinks overlooked | Pilot.sets | base not in self.refused | True |
  test_price_is_refused_where_there_are_kinks
scores without a baseline | whole_gradient | (LB, LOO, SF) if q.pull1 is None else
  (RP1, GR, LB, LOO, SF) | (RP1, GR, LB, LOO, SF) | test_candidates
one half resampled twice | Pilot.resampled | mean(K)[:, :, None] | mean(K[[0, 0]])[:, :, None] |
  test_resampled_choosing
a snapshot for nothing | timed | best[s] + best.get(old, 0.0) / (plan.renew or 1) | best[s] |
  test_price_of_a_step
the last step for the shortest | timed | min(best[name], Timer(way, timer=clock).timeit(1)) |
  Timer(way, timer=clock).timeit(1) | test_turns
rounding chooses | choose | np.round(np.log(product(*given)), 9) | np.log(product(*given)) |
  test_of_equal_sets_the_first_is_chosen
finalists not timed themselves | choose | time(last, 0.4) | {} | test_timed_for_real
noise below rounding error chooses | Pilot.each |
  np.maximum(np.vecdot(np.vecmat(v, (of or self.K)[s.base]), v), self.least) |
  np.abs(np.vecdot(np.vecmat(v, (of or self.K)[s.base]), v)) + 1e-300 |
  test_without_noise_the_cheapest_wins
# fit: test_fitting
some rows not scaled to all | Density._up_to | self.scale * x | x | test_slopes
too few rows for the unknowns | enough | max(ROWS, EACH * model.dim) | ROWS // 10 | test_many_rows
the search does not end where it is level | strategies.climb | not here.slope @ way / 2 > enough |
  False | test_the_best_start
wrong turns | Curvature.see | old.slope - new.slope | new.slope - old.slope | test_the_search
what was known of the curvature forgotten | strategies.climb | Point(z, -np.inf, np.zeros_like(z)),
  known | Point(z, -np.inf, np.zeros_like(z)), Curvature(known.most) | test_the_search
even draws that are not | evened | e.T @ e / len(e) | e.T @ e | test_fixed_draws
the entropy left out of the search | strategies.top |
  q.joined(G.sum(0), of_factor) + q.entropy_grad(v) | q.joined(G.sum(0), of_factor) |
  test_fixed_draws
the same draws at every climb | Fixed.step | self.turns * 2**state.t | self.turns |
  test_climbs_of_a_diagonal_q
draws without a number not left out | strategies.top |
  np.isfinite(value) & np.isfinite(G).all(-1) | np.ones(len(e), bool) | test_climbs_of_a_diagonal_q
half of a pair without a number | rotated._seen | fine[:half] & fine[half:-1] | fine[:half] |
  test_draws_without_a_number
curvature for covariance | laplace | np.linalg.inv(P) | P | test_the_mode
widths from the curvature itself | _widths | 1 / np.sqrt(np.maximum(np.nan_to_num(seen, nan=1e-4),
  1e-4)) | np.sqrt(np.maximum(np.nan_to_num(seen, nan=1e-4), 1e-4)) | test_a_diagonal_start
the search from zero whatever was given | starts.start | given or Start(np.zeros(model.dim), None,
  'z = 0') | Start(np.zeros(model.dim), None, 'z = 0') | test_a_start_on_the_way
a rise for ever taken for units | conflicts | -np.inf < height[top + 1] <= height[top] | True |
  test_far_out_in_the_prior
large errors of a quantile | roughest | 2 if "%" in k else 1 | 1 |
  test_the_row_with_the_largest_errors
rounding taken for a loss | Run.compare | -tolerance / 50 | 1e-12 | test_a_look
slopes not in the coordinates of q | scored | q.times_t(draw.factor, slope) | slope |
  test_a_gaussian_posterior
# kinds: test_kinds
draws without constraints | Found.named | self.model.named |
  self.model.parameters.__class__({k: c.inner
  for k, c in self.model.parameters.each.items()}).named | test_answers_are_the_posterior_s[early]
the old look shown after one step more | Run.go |
  self.settled, self.last, before = False, None, self.seconds |
  self.settled, before = False, self.seconds |
  test_one_step_more_shows_the_new_fit_and_leaves_the_old_one[full]
two fits share a generator | Fit.go_on | deepcopy(self.run.state) | self.run.state |
  test_one_step_more_shows_the_new_fit_and_leaves_the_old_one[full]
a straight q shown for a bent one | front.judged | q, w = run.law | q, w = run.q, run.best |
  test_one_step_more_shows_the_new_fit_and_leaves_the_old_one[bent]
a file without looks | restored | tuple(map(tuple, run.looks)) | () |
  test_a_file_holds_the_whole_fit[diagonal]
M forgotten in a file | restored | {"words": tuple(told["words"])} |
  {"words": tuple(told["words"]), "M": None} | test_what_the_start_and_the_clock_saw_stays
a fit begins without covariances | front._given |
  start.cov if q.full and start.q.full else start.sd | start.sd |
  test_another_fit_is_where_to_begin[full]
# edges: test_edges
all data, coupled again | Relaxed.over_all_data |
  Relaxed(self.f.over_all_data(), self.tau, self.coupled) |
  Relaxed(self.f.over_all_data(), self.tau, True) | test_all_data_are_the_batch_of_all_rows
a run's draw without weights | _of_run | own(d.weight) | None |
  test_one_run_of_many_is_that_run_alone
a minute although steps are given | Clock.__init__ |
  np.inf if steps is not None else settings.seconds | settings.seconds |
  test_one_budget_lifts_the_default_of_the_other[fit]
a zero vector divides | jax._bend |
  np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-300) |
  np.linalg.norm(v, axis=-1, keepdims=True) | test_vectors_of_zeros
a draw's value not looked at | Regressed.step | np.isfinite(G).all(-1) & np.isfinite(value) |
  np.isfinite(G).all(-1) | test_draws_of_a_diagonal_q_without_a_number_are_left_out
a coordinate that stands still | check_moves | still.any() | still.all() |
  test_a_coordinate_that_stands_still[3.0]
correlations rise again | stein.correlation | np.minimum.accumulate(rho[::2] + rho[1::2], 0) |
  rho[::2] + rho[1::2] | test_autocorrelation_times
a prime below half | points.prime | -(-d // 2) | d // 2 | test_primes
the same rotations at every step | Rotated.rotations | range(step * n, step * n + n) | range(n) |
  test_rotations_of_a_run[1-1-3]
# chains: test_chains
draws of any law taken | _check_law | (bad := p < CHANCE).any() | (bad := p < 0).any() |
  test_draws_of_another_model_are_refused[another prior]
the second order not tested | _check_law | at.score * away + 1 | 0 * away |
  test_a_wrong_score_is_refused[False]
neighbours taken for independent | _check_law | np.sqrt(time) | 1.0 |
  test_slow_and_short_chains_of_the_model_are_not_refused[5-(1, 200)]
a slight bias refused | _check_law | by.max() > FAR | by.max() > 0 |
  test_a_slight_bias_of_very_many_draws_is_told_and_not_refused
weights not tested | _check_law | np.sqrt((w**2) @ far**2) | 1e9 |
  test_a_wrong_score_is_refused[True]
answers out of range | _check_range | bad.any() | False | test_no_mean_lies_outside_the_range_of_f
sd about another middle | summary | (mean - about) ** 2 | 0 * mean | test_a_summary_of_a_chain
quantiles of draws of like share | summary | stein.inverse(F, share, tails) |
  stein.inverse(F, 0 * share + 1 / len(share), tails) | test_a_summary_of_a_chain
tilted variates forget the slope | tilted | s[:, None] + b.T[own] | s[:, None] + 0 * b.T[own] |
  test_tilted_variates_have_mean_zero
tilted variates forget the divergence | tilted | x[:, None] * score + 1 |
  x[:, None] * score | test_tilted_variates_have_mean_zero
no tilted variates | answer | many[k] + m < most | False |
  test_the_mean_of_a_scale_is_exact_where_its_tilted_variates_reach
raw errors of one regression | summary | F.std(0) / np.sqrt(raw) | F.std(0) / np.sqrt(ess) |
  test_a_summary_of_a_chain
# adapters: test_adapters
JAX without log-Jacobians | from_jax | joint(p) + stretch | joint(p) | in_jax
the potential taken for log p | from_numpyro |
  -util.potential_energy(fresh(), args, kwargs, split(z)) |
  util.potential_energy(fresh(), args, kwargs, split(z)) | in_numpyro
the first block again | Batched.__call__ | z[first : first + size] | z[:size] | in_jax
names backwards | jax.flat | labels(name, shape) | labels(name, shape)[::-1] | in_numpyro
unconstrained values for parameters | from_pymc | constrained(split(z)) | split(z) | in_pymc
the names of value variables | from_pymc | model.values_to_rvs[v].name | v.name | in_pymc
"""


def bug(entry):
    fields = re.split(r" \|(?= )", " ".join(entry.split()))
    return tuple(field.strip().replace(r"\n", "\n") for field in fields)


MUTANTS, FILES = {}, {}
for part in re.split("^# ", BUGS, flags=re.M)[1:]:
    heading, *entries = re.split(r"\n(?! )", part.strip())
    area, files = heading.split(": ")
    MUTANTS[area], FILES[area] = [bug(entry) for entry in entries], files.split()
