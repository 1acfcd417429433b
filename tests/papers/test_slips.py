"""Slips in the texts of allen2024, rolinek2019 and sikka2019: what is printed fails where what holds does not."""

import math

import pytest
import torch

from unseam.geometry import stochastic_minimum
from unseam.models import Bernoulli, Diagonal, Gaussian, PixelGaussian
from unseam.papers.sikka2019.linear import example_mixing, linear_terms
from unseam.theory import (
    diagonal_hessian,
    diagonal_hessian_optimal,
    linear_beta_vae,
    linear_vae,
    optimal_precision,
    ppca,
)

F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def turns(count, latent):
    return torch.linalg.qr(normal(count, latent, latent)).Q


# allen2024


def test_eq_4_ends_in_an_inverse():
    """Σ = σ²(WᵀW + σ²I)⁻¹ = σ²RᵀS⁻¹R for W = U(S − σ²I)^½R; printed is RSRᵀ."""
    noise, scales = 0.5, torch.tensor([5.0, 3.0, 2.0], dtype=F64)
    rotation = turns(1, 3)[0]
    axes = torch.linalg.qr(normal(6, 3, seed=1)).Q
    weights = axes * (scales - noise).sqrt() @ rotation
    posterior = noise * torch.linalg.inv(weights.mT @ weights + noise * torch.eye(3, dtype=F64))
    torch.testing.assert_close(posterior, noise * rotation.mT @ torch.diag(1 / scales) @ rotation)
    printed = rotation @ torch.diag(scales) @ rotation.mT
    assert float(torch.linalg.eigvalsh(posterior).max()) < 1 < float(torch.linalg.eigvalsh(printed).min())


def test_eq_4_is_the_posterior_of_ppca():
    axes = torch.linalg.qr(normal(4, 4)).Q
    eigenvalues = torch.tensor([6.0, 3.0, 1.0, 1.0], dtype=F64)
    found = ppca((axes * eigenvalues) @ axes.mT, 2, noise=1.0)
    torch.testing.assert_close(found.covariance, torch.diag(1 / eigenvalues[:2]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_eq_5_has_all_four_terms_in_its_bracket(beta):
    """At the prior the KL is zero; the printed prior and entropy terms make −(β/2)d − d of it."""
    posterior = Diagonal(2).double()
    mean, log_variance = normal(5, 2), normal(5, 2, seed=1) - 1
    mean[0], log_variance[0] = 0.0, 0.0
    moments = posterior.moments(torch.cat([mean, log_variance], 1))
    variance = posterior.variance(moments)
    square, trace, log_det = mean.square().sum(1), variance.sum(1), variance.log().sum(1)
    holds = -beta / 2 * (square + trace - log_det - 2)
    printed = -beta / 2 * (square + trace) - log_det - 2
    torch.testing.assert_close(holds, -beta * posterior.kl(moments))
    assert holds[0] == 0
    assert printed[0] == -beta - 2


def test_a4_needs_both_halves_of_the_bernoulli_likelihood():
    """Without (1 − x)ᵀ log(1 − s) a black pixel may be painted white at no cost."""
    x, logits = torch.zeros(3, 1, dtype=F64), torch.tensor([[-3.0], [0.0], [3.0]], dtype=F64)
    printed = (x * logits.sigmoid().log()).sum(1)
    assert printed.abs().max() == 0
    whole = printed + ((1 - x) * (1 - logits.sigmoid()).log()).sum(1)
    torch.testing.assert_close(Bernoulli().log_prob(x, logits), whole)
    assert (whole.diff() < -0.6).all()


def test_theorem_4_wants_the_swap_and_not_the_identity():
    """T = diag(−1, −10), Σ = diag(0.1, 1): V = I gives −10.1, a swap of the axes −2, the most of all turns."""
    spectrum, variance = (
        torch.diag(torch.tensor([-1.0, -10.0], dtype=F64)),
        torch.tensor([0.1, 1.0], dtype=F64),
    )
    swap = torch.eye(2, dtype=F64).flip(0)
    assert diagonal_hessian(spectrum, variance).value.item() == pytest.approx(-10.1)
    assert diagonal_hessian(swap @ spectrum @ swap, variance).value.item() == pytest.approx(-2)
    turn = turns(2000, 2)
    every = diagonal_hessian(turn @ spectrum @ turn.mT, variance).value
    assert every.min() >= -10.1
    assert every.max() <= -2


@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_iff_v_is_the_identity_means_up_to_what_leaves_h_diagonal(beta):
    """Theorem 5's bound is reached by every signed permutation, and by turns within a repeated eigenvalue."""
    spectrum = torch.tensor([-4.0, -1.0, -1.0], dtype=F64)
    angle = torch.tensor(0.7, dtype=F64)
    inside = torch.eye(3, dtype=F64)
    inside[1:, 1:] = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
    permuted = torch.eye(3, dtype=F64)[[2, 0, 1]] * torch.tensor([1.0, -1.0, 1.0], dtype=F64)
    across = inside[[1, 0, 2]][:, [1, 0, 2]]
    gaps = []
    for turn in (inside, permuted, across):
        found = diagonal_hessian_optimal(turn @ torch.diag(spectrum) @ turn.mT, beta=beta)
        gaps.append(float(found.bound - found.value))
    assert gaps[0] == pytest.approx(0, abs=1e-12)
    assert gaps[1] == pytest.approx(0, abs=1e-12)
    assert gaps[2] > 0.01


def test_the_posts_eq_1_gives_the_precision_and_not_the_covariance():
    weights, noise = normal(5, 2), 0.3
    precision = optimal_precision(weights.mT @ weights / noise)
    exact = noise * torch.linalg.inv(weights.mT @ weights + noise * torch.eye(2, dtype=F64))
    torch.testing.assert_close(torch.linalg.inv(precision), exact)
    # a posterior wider than the prior is never the best
    assert torch.linalg.eigvalsh(exact).max() < 1 < torch.linalg.eigvalsh(precision).min()


def test_a2_is_the_variance_for_natural_parameters_alone():
    """Means μ have weight 1/σ²; the natural parameter μ/σ² has Var[x|θ] = σ²; both give the same precision."""
    noise, weights = 0.25, normal(5, 2)
    likelihood = Gaussian(noise).double()
    likelihood.reset()
    output = torch.zeros(1, 5, dtype=F64)
    weight = likelihood.fisher_weight(output)[0]
    of_means = weights.mT @ (weight[:, None] * weights)
    natural = weights / noise
    of_natural = natural.mT @ (likelihood.variance(output)[0][:, None] * natural)
    torch.testing.assert_close(of_means, of_natural)
    wrong = weights.mT @ (likelihood.variance(output)[0][:, None] * weights)
    covariance = noise * torch.linalg.inv(weights.mT @ weights + noise * torch.eye(2, dtype=F64))
    torch.testing.assert_close(torch.linalg.inv(optimal_precision(of_means)), covariance)
    assert float((torch.linalg.inv(optimal_precision(wrong)) - covariance).abs().max()) > 0.1


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_a_learned_variance_absorbs_beta(beta):
    """Of one pixel the objective gains ½(1 − β) for each nat that log σ² falls: without end, or not at all."""
    covariance = torch.full((1, 1), 4.0, dtype=F64)
    values = [linear_vae(covariance, 1, noise=math.exp(-nats), beta=beta).objective for nats in (1, 5, 20)]
    assert values[1] - values[0] == pytest.approx((1 - beta) / 2 * 4, abs=1e-9)
    assert values[2] - values[1] == pytest.approx((1 - beta) / 2 * 15, abs=1e-9)


def test_a_variance_for_each_pixel_models_independent_pixels_without_latents():
    """Collapse at β = 1: the likelihood alone reaches log p(x), which no ELBO passes."""
    spread = torch.tensor([4.0, 0.5], dtype=F64)
    x = normal(20, 2) * spread.sqrt()
    output = torch.cat([torch.zeros(20, 2, dtype=F64), spread.log().expand(20, 2)], 1)
    truth = torch.distributions.Normal(0.0, spread.sqrt()).log_prob(x).sum(1)
    torch.testing.assert_close(PixelGaussian().log_prob(x, output), truth)
    above = linear_vae(torch.diag(spread), 2, noise=4.0, beta=2.0)
    assert above.kl == 0


# rolinek2019

FIRST = torch.tensor([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]], dtype=F64)


@pytest.mark.parametrize(("reading", "exponent"), [("variance", -0.5), ("deviation", -1.0)])
def test_eqs_25_and_26_need_another_constraint_than_eq_23(reading, exponent):
    """−Σ log σ² = C leaves e^(−C/2), so that at C = 2 the printed bound e^−C is passed from above by e."""
    gram = FIRST.mT @ FIRST
    losses = [float(stochastic_minimum(gram, budget, reading=reading).loss) for budget in (0.0, 2.0)]
    assert losses[0] == pytest.approx(2 * math.sqrt(150))
    assert losses[1] == pytest.approx(losses[0] * math.exp(2 * exponent))


def test_the_squares_of_eq_25_are_those_of_deviations():
    """a² + b² ≥ 2ab gives Eq. 25 with a² = 50σx²; with a² = 50σx, as printed, it bounds another sum."""
    deviation = torch.rand(500, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    loss = (torch.tensor([50.0, 3.0]) * deviation.square()).sum(1)
    bound = 2 * math.sqrt(150) * deviation.prod(1)
    assert (loss >= bound).all()
    printed = (torch.tensor([50.0, 3.0]) * deviation).sum(1)
    assert (loss < printed).all()
    printed_bound = 2 * math.sqrt(150) * deviation.prod(1).sqrt()
    assert (printed >= printed_bound).all()
    assert (loss < printed_bound).any()


def test_eq_7_has_its_two_projections_in_the_other_order():
    """P_dᵀP_d = Pᵀ I_{n×d} I_{d×n} P; I_{d×n} I_{n×d} is the identity of d and fits between no n × n matrices."""
    latent, data = 2, 4
    wide = torch.eye(latent, data, dtype=F64)
    axes = turns(1, data)[0]
    scale = torch.zeros(data, latent, dtype=F64)
    scale[:latent] = torch.diag(torch.tensor([3.0, 0.5], dtype=F64))
    decoder = axes.mT @ scale @ turns(1, latent)[0]
    torch.testing.assert_close(decoder @ torch.linalg.pinv(decoder), axes.mT @ (wide.mT @ wide) @ axes)
    torch.testing.assert_close(wide @ wide.mT, torch.eye(latent, dtype=F64))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        axes.mT @ (wide @ wide.mT)


def test_the_elbo_is_the_evidence_less_the_divergence():
    """Eq. S60 prints their sum, which is above log p(x)."""
    weights, noise, x = normal(3, 2), 0.4, normal(3, seed=1)
    mean, scale = normal(2, seed=2), torch.tensor([0.3, 0.6], dtype=F64)
    of = torch.distributions.MultivariateNormal
    eye = torch.eye(2, dtype=F64)
    q, prior = of(mean, torch.diag(scale.square())), of(torch.zeros(2, dtype=F64), eye)
    precision = eye + weights.mT @ weights / noise
    posterior = of(torch.linalg.solve(precision, weights.mT @ x / noise), torch.linalg.inv(precision))
    evidence = of(torch.zeros(3, dtype=F64), weights @ weights.mT + noise * torch.eye(3)).log_prob(x)
    missed = (x - weights @ mean).square().sum() + (weights.square().sum(0) * scale.square()).sum()
    elbo = -(missed / noise + 3 * math.log(2 * math.pi * noise)) / 2 - torch.distributions.kl_divergence(
        q, prior
    )
    apart = torch.distributions.kl_divergence(q, posterior)
    torch.testing.assert_close(elbo, evidence - apart)
    assert evidence + apart > evidence > elbo


def test_a_signed_permutation_flips_no_eigenvalue():
    """VΣ'Vᵀ has V twice: the signs of Eq. S61 go, and MᵀM stays positive."""
    squares = torch.tensor([9.0, 4.0, 1.0], dtype=F64)
    turn = torch.eye(3, dtype=F64)[[2, 0, 1]] * torch.tensor([-1.0, 1.0, -1.0], dtype=F64)
    found = turn @ torch.diag(squares) @ turn.mT
    torch.testing.assert_close(found, torch.diag(squares[[2, 0, 1]]))


@pytest.mark.parametrize("seed", range(3))
def test_lemma_s5_turns_v_from_the_left(seed):
    """M' = UΣV'ᵀ keeps c_3 for V' = R V; V' = V R, as printed, turns the rows of ΣVᵀ and moves every column."""
    scales = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=F64))
    axes = torch.linalg.qr(normal(3, 3, seed=seed)).Q
    turn = torch.eye(3, dtype=F64)
    angle = torch.tensor(0.1, dtype=F64)
    turn[:2, :2] = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
    columns = scales @ axes.mT
    held, printed = scales @ (turn @ axes).mT, scales @ (axes @ turn).mT
    torch.testing.assert_close(held[:, 2], columns[:, 2])
    assert (printed[:, 2] - columns[:, 2]).norm() > 1e-3
    torch.testing.assert_close(held, columns @ turn.mT)


def test_the_volume_of_two_columns_goes_with_the_sine_of_their_angle():
    """Fig. 2's ‖w_1‖‖w_2‖ cos α is a volume for an α measured from the right angle."""
    columns = normal(4, 2)
    between = torch.nn.functional.cosine_similarity(*columns.unbind(1), dim=0).acos()
    volume = (columns.mT @ columns).det().sqrt()
    lengths = columns.norm(dim=0).prod()
    torch.testing.assert_close(volume, lengths * between.sin())
    torch.testing.assert_close(volume, lengths * (math.pi / 2 - between).cos())
    assert abs(float(volume - lengths * between.cos().abs())) > 0.1


# sikka2019


class Linear:
    """Random parameters of the exactly solvable model, and its objective L_β of Eq. 21."""

    beta = 1.7
    data, latent = 5, 2

    def __init__(self):
        self.mixing = normal(self.data, self.latent)
        self.covariance = self.mixing @ self.mixing.mT + torch.eye(self.data, dtype=F64)
        shapes = {
            "encoder": (self.latent, self.data),  # W^μ
            "encoder_bias": (self.latent,),  # b^μ
            "slope": (self.latent, self.data),  # W^σ
            "slope_bias": (self.latent,),  # b^σ
            "decoder": (self.data, self.latent),  # D
            "decoder_bias": (self.data,),  # b^D
        }
        for seed, (name, shape) in enumerate(shapes.items(), 1):
            setattr(self, name, (normal(*shape, seed=seed) / 2).requires_grad_())

    @property
    def spread(self):
        """E_x of the posterior variances, e^(½[W^σ Σ W^σᵀ]_ii + b_i)."""
        return ((self.slope @ self.covariance @ self.slope.mT).diagonal() / 2 + self.slope_bias).exp()

    @property
    def cost(self):
        return self.decoder.square().sum(0) + self.beta

    def objective(self):
        rest = self.decoder @ self.encoder - torch.eye(self.data, dtype=F64)
        middle = self.decoder @ self.encoder_bias + self.decoder_bias
        total = (rest @ self.covariance @ rest.mT).trace() + middle.square().sum()
        coded = (self.encoder @ self.covariance @ self.encoder.mT).trace() + self.encoder_bias.square().sum()
        return (
            -(total + self.beta * coded + (self.cost * self.spread).sum() - self.beta * self.slope_bias.sum())
            / 2
        )

    def gradient(self, name):
        return torch.autograd.grad(self.objective(), getattr(self, name))[0]


def sigma_points(mean, covariance):
    """Points with this mean and covariance, over which a quadratic function has its Gaussian expectation."""
    root = math.sqrt(len(mean)) * torch.linalg.cholesky(covariance).mT
    return torch.cat([mean + root, mean - root])


def test_eq_38_lacks_a_half():
    """E_q log p(x|z) of two encoders differs by half of what Eq. 38 says; constants drop out of the difference."""
    decoder, x = normal(4, 2), normal(4, seed=1)
    exact, printed = [], []
    for seed in (2, 3):
        mean, covariance = normal(2, seed=seed), torch.diag(normal(2, seed=seed + 2).exp())
        z = sigma_points(mean, covariance)
        exact.append(torch.distributions.Normal(z @ decoder.mT, 1.0).log_prob(x).sum(-1).mean())
        printed.append(-(decoder @ mean - x).square().sum() - (decoder.mT @ decoder @ covariance).trace())
    torch.testing.assert_close(exact[1] - exact[0], (printed[1] - printed[0]) / 2)
    assert abs(float(printed[1] - printed[0])) > 1


def test_eq_39_is_the_kl():
    mean, variance = normal(3), normal(3, seed=1).exp()
    printed = -(3 + variance.log().sum() - mean.square().sum() - variance.sum()) / 2
    q = torch.distributions.Normal(mean, variance.sqrt())
    torch.testing.assert_close(
        torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(), printed
    )


def test_eq_21_is_the_mean_of_eq_40():
    """Over points with the moments of the data, log-variances being zero, which is where both are quadratic in x."""
    model = Linear()
    with torch.no_grad():
        model.slope.zero_()
        x = sigma_points(torch.zeros(5, dtype=F64), model.covariance)
        mean = x @ model.encoder.mT + model.encoder_bias
        variance = model.slope_bias.exp()
        missed = (mean @ model.decoder.mT + model.decoder_bias - x).square().sum(-1)
        printed = (
            missed + model.beta * mean.square().sum(-1) + (model.decoder.square().sum(0) * variance).sum()
        )
        printed = printed - model.beta * variance.log().sum() + model.beta * variance.sum()
        torch.testing.assert_close(model.objective(), -printed.mean() / 2)


def test_the_exponent_of_eqs_23_and_46_is_that_of_a_diagonal_entry():
    """∂L/∂W^σ is −½ of what holds; the printed exponent has one term of [W^σ Σ W^σᵀ]_aa for each column b."""
    model = Linear()
    coded = model.slope @ model.covariance
    holds = (model.cost * model.spread)[:, None] * coded
    printed = model.cost[:, None] * (coded * model.slope / 2 + model.slope_bias[:, None]).exp() * coded
    gradient = model.gradient("slope")
    torch.testing.assert_close(gradient, -holds / 2)
    assert (gradient + printed / 2).abs().max() > 0.1
    # either vanishes at W^σ Σ = 0 alone, as the factors before it are positive
    assert (printed.sign() == holds.sign()).all()


def test_the_other_conditions_of_eqs_42_to_47_hold():
    """Each is its derivative up to a negative factor; Eq. 47 with Σ in the place of C."""
    model = Linear()
    rest = model.decoder @ model.encoder - torch.eye(5, dtype=F64)
    middle = model.decoder @ model.encoder_bias + model.decoder_bias
    printed = {
        "encoder": (-1, (model.decoder.mT @ rest + model.beta * model.encoder) @ model.covariance),
        "encoder_bias": (-1, middle @ model.decoder + model.beta * model.encoder_bias),
        "decoder": (
            -1,
            rest @ model.covariance @ model.encoder.mT
            + middle[:, None] * model.encoder_bias
            + model.decoder * model.spread,
        ),
        "decoder_bias": (-1, middle),
        "slope_bias": (-0.5, model.cost * model.spread - model.beta),
    }
    for name, (factor, value) in printed.items():
        torch.testing.assert_close(model.gradient(name), factor * value, msg=name)


def test_eq_59_is_the_posterior_of_z_with_latent_times_latent_matrices():
    """Bayes' rule gives Eq. 24; Eq. 59 prints p(x|z), and DDᵀ for DᵀD, which does not fit unless data = latent."""
    of, decoder = torch.distributions.MultivariateNormal, normal(4, 2)
    small, large = torch.eye(2, dtype=F64), torch.eye(4, dtype=F64)
    x, z = normal(6, 4, seed=1), normal(6, 2, seed=2)
    covariance = torch.linalg.inv(decoder.mT @ decoder + small)
    bayes = of(z @ decoder.mT, large).log_prob(x) + of(torch.zeros(2, dtype=F64), small).log_prob(z)
    bayes = bayes - of(torch.zeros(4, dtype=F64), decoder @ decoder.mT + large).log_prob(x)
    torch.testing.assert_close(of(x @ decoder @ covariance, covariance).log_prob(z), bayes)
    torch.testing.assert_close(
        covariance @ decoder.mT, decoder.mT @ torch.linalg.inv(decoder @ decoder.mT + large)
    )
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.linalg.inv(decoder @ decoder.mT + large) @ decoder.mT
    square, eye = normal(3, 3), torch.eye(3, dtype=F64)
    of_eq_24 = torch.linalg.inv(square.mT @ square + eye) @ square.mT
    of_eq_59 = torch.linalg.inv(square @ square.mT + eye) @ square.mT
    assert (of_eq_24 - of_eq_59).abs().max() > 0.1


def test_eq_25_has_a_diagonal_entry_of_an_inverse():
    """(E⁻¹)_ii and not 1/E_ii: the true posterior's E is not diagonal."""
    mixing = example_mixing()
    best = linear_beta_vae(mixing, 1.3)
    precision = mixing.mT @ mixing + torch.eye(2, dtype=F64)
    covariance = mixing @ mixing.mT + torch.eye(128, dtype=F64)
    apart = torch.linalg.solve(precision, mixing.mT) - best.encoder
    rest = (apart.mT @ precision @ apart @ covariance).trace() - torch.logdet(precision) - 2
    rest = rest - best.variance.log().sum()
    holds, other = (
        ((weights * best.variance).sum() + rest) / 2
        for weights in (precision.diagonal(), 1 / torch.linalg.inv(precision).diagonal())
    )
    torch.testing.assert_close(holds, best.tie)
    assert holds - other > 1


def test_a_decoder_equal_to_the_mixing_matrix_is_not_the_optimum():
    """D = A has the data's own likelihood, as A R has for every rotation R; a diagonal posterior tells them apart."""
    mixing = example_mixing()
    best = linear_beta_vae(mixing, 1.0)
    torch.testing.assert_close(best.decoder @ best.decoder.mT, mixing @ mixing.mT)
    torch.testing.assert_close(best.elbo, best.log_likelihood)
    precision = mixing.mT @ mixing + torch.eye(2, dtype=F64)
    found = linear_terms(mixing, mixing, torch.linalg.solve(precision, mixing.mT), 1 / precision.diagonal())
    gap = (precision.diagonal().log().sum() - torch.logdet(precision)) / 2
    torch.testing.assert_close(best.elbo - (found.reconstruction - found.kl), gap)
    assert gap.item() == pytest.approx(math.log(33.75**2 / (66.25 * 1.25)) / 2)
