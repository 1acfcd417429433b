"""β-TCVAE: its decomposition, and both estimates of the aggregate posterior."""

import itertools
import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal

from unseam.objectives import beta_tcvae, stratified_weights

LOG_2 = math.log(2)
LOG_2PI = math.log(2 * math.pi)


@pytest.fixture
def densities(normal):
    """Densities q(z_i | x_j) of five items at one z for each of them."""
    return (-normal(5, 5).square()).exp()


def batches_with(i, size, batch):
    """Every ordered batch that holds item i, drawn without replacement, with the position of i in it."""
    rest = [j for j in range(size) if j != i]
    for chosen in itertools.permutations(rest, batch - 1):
        for position in range(batch):
            yield position, [*chosen[:position], i, *chosen[position:]]


def cyclic_weights(batch, size):
    """The weights of Chen et al. App. C.2, the smaller one on the item after the sample's own."""
    weights = torch.full((batch, batch), 1 / (batch - 1), dtype=torch.float64)
    for i in range(batch):
        weights[i, i] = 1 / size
        weights[i, (i + 1) % batch] = (size - batch + 1) / (size * (batch - 1))
    return weights


@pytest.mark.parametrize("batch", [2, 3, 4, 5])
@pytest.mark.parametrize("form", ["ours", "published"])
def test_stratified_density_is_unbiased_over_all_batches(densities, batch, form):
    ours = stratified_weights(batch, 5, dtype=torch.float64)
    weights = ours if form == "ours" else cyclic_weights(batch, 5)
    for i in range(5):
        estimates = [
            (weights[position] * densities[i, order]).sum() for position, order in batches_with(i, 5, batch)
        ]
        torch.testing.assert_close(torch.stack(estimates).mean(), densities[i].mean(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("batch", [3, 4])
def test_stratified_weights_average_the_published_ones_and_vary_less(densities, batch):
    ours = stratified_weights(batch, 5, dtype=torch.float64)[0]
    published = cyclic_weights(batch, 5)[0]
    placed = [published[[0, *order]] for order in itertools.permutations(range(1, batch))]
    torch.testing.assert_close(torch.stack(placed).mean(0), ours, rtol=1e-14, atol=0)

    chosen = torch.tensor([(0, *order) for order in itertools.permutations(range(1, 5), batch - 1)])
    spread = [(weights * densities[0][chosen]).sum(1).var() for weights in (ours, published)]
    assert spread[0] < spread[1]


def test_stratified_rows_sum_to_one_with_the_own_weight_on_the_diagonal():
    weights = stratified_weights(4, 10, dtype=torch.float64)
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(weights.diagonal(), torch.full((4,), 0.1, dtype=torch.float64))
    assert (weights - weights.T).abs().max() == 0


@pytest.mark.parametrize("batch", [2, 4])
def test_weighted_density_is_in_expectation_a_lower_bound(densities, batch):
    for i in range(5):
        drawn = [densities[i, order].sum() / (5 * batch) for _, order in batches_with(i, 5, batch)]
        estimates = torch.stack(drawn)
        rest = (densities[i].sum() - densities[i, i]) / 4
        expected = (densities[i, i] + (batch - 1) * rest) / (5 * batch)
        torch.testing.assert_close(estimates.mean(), expected, rtol=1e-12, atol=0)
        assert estimates.mean() < densities[i].mean()


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_full_data_set_gives_the_exact_decomposition(make_model, normal, posterior):
    model, x, noise = make_model(posterior=posterior), normal(6, 3), normal(6, 2)
    result = model(x, noise)
    covariance = model.encode(x).variance
    if posterior == "diagonal":
        covariance = torch.diag_embed(covariance)
    each = MultivariateNormal(result.moments.mean, covariance)
    uniform = Categorical(torch.ones(6, dtype=torch.float64))
    log_joint = MixtureSameFamily(uniform, each).log_prob(result.z)
    marginals = Normal(result.moments.mean.T, covariance.diagonal(dim1=-2, dim2=-1).sqrt().T)
    uniforms = Categorical(torch.ones(2, 6, dtype=torch.float64))
    log_product = MixtureSameFamily(uniforms, marginals).log_prob(result.z).sum(1)
    log_conditional = each.log_prob(result.z)
    log_prior = Normal(torch.zeros(2, dtype=torch.float64), 1.0).log_prob(result.z).sum(1)

    terms = beta_tcvae(model, x, noise, beta=6.0, size=6, sampling="stratified")
    torch.testing.assert_close(terms.index_code_mi, (log_conditional - log_joint).mean())
    torch.testing.assert_close(terms.total_correlation, (log_joint - log_product).mean())
    torch.testing.assert_close(terms.dimension_kl, (log_product - log_prior).mean())


@pytest.mark.parametrize("sampling", ["weighted", "stratified"])
@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_three_terms_sum_to_the_sampled_kl(make_model, normal, posterior, sampling):
    model, x, noise = make_model(posterior=posterior), normal(6, 3), normal(6, 2)
    result = model(x, noise)
    log_prior = Normal(torch.zeros(2, dtype=torch.float64), 1.0).log_prob(result.z).sum(1)
    sampled = (model.posterior.log_prob(result.moments, result.z) - log_prior).mean()
    terms = beta_tcvae(model, x, noise, beta=1.0, size=50, sampling=sampling)
    total = terms.index_code_mi + terms.total_correlation + terms.dimension_kl
    torch.testing.assert_close(total, sampled)
    torch.testing.assert_close(terms.loss, terms.reconstruction + sampled)
    torch.testing.assert_close(terms.kl, result.kl.mean())


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_stratified_terms_against_a_loop(make_model, normal, posterior):
    model, x, noise = make_model(posterior=posterior), normal(4, 3), normal(4, 2)
    result, variance = model(x, noise), model.encode(x).variance
    covariance = torch.diag_embed(variance) if posterior == "diagonal" else variance
    weights = stratified_weights(4, 9, dtype=torch.float64)
    total_correlation = 0.0
    for i in range(4):
        joint, marginal = 0.0, torch.zeros(2, dtype=torch.float64)
        for j in range(4):
            mean = result.moments.mean[j]
            joint += weights[i, j] * MultivariateNormal(mean, covariance[j]).log_prob(result.z[i]).exp()
            marginal += (
                weights[i, j] * Normal(mean, covariance[j].diagonal().sqrt()).log_prob(result.z[i]).exp()
            )
        total_correlation += (joint.log() - marginal.log().sum()) / 4
    terms = beta_tcvae(model, x, noise, beta=1.0, size=9, sampling="stratified")
    torch.testing.assert_close(terms.total_correlation, total_correlation)


def test_beta_is_pinned_by_hand_weighted(constant_model):
    # Two items share q = N(0, I), so every estimate of a density is low by log 2: the mutual information is log 2,
    # the total correlation (2 - 1) log 2 and the dimension-wise KL -2 log 2. With β = 6: (1 + 6 - 2) log 2.
    model = constant_model([0, 0, 0, 0], [[1.0, 0.0], [0.0, 1.0]])
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    terms = beta_tcvae(model, zeros, zeros, beta=6.0, size=2)
    assert terms.index_code_mi.item() == pytest.approx(LOG_2)
    assert terms.total_correlation.item() == pytest.approx(LOG_2)
    assert terms.dimension_kl.item() == pytest.approx(-2 * LOG_2)
    assert terms.loss.item() == pytest.approx(LOG_2PI + 5 * LOG_2)


def test_weights_are_pinned_by_hand_stratified(identity_model):
    # Two items 100 standard deviations apart, z at the means: q(z) = q(z|x)/2, each marginal likewise.
    # Mutual information log 2, total correlation log 2, dimension-wise KL (40² + 30²)/2 - 2 log 2.
    x = torch.tensor([[40.0, 30.0], [-40.0, -30.0]], dtype=torch.float64)
    noise = torch.zeros(2, 2, dtype=torch.float64)
    options = {"size": 2, "sampling": "stratified"}
    terms = beta_tcvae(identity_model(), x, noise, alpha=3.0, beta=6.0, gamma=2.0, **options)
    assert terms.index_code_mi.item() == pytest.approx(LOG_2)
    assert terms.total_correlation.item() == pytest.approx(LOG_2)
    assert terms.dimension_kl.item() == pytest.approx(1250 - 2 * LOG_2)
    assert terms.loss.item() == pytest.approx(LOG_2PI + 3 * LOG_2 + 6 * LOG_2 + 2 * (1250 - 2 * LOG_2))


@pytest.mark.parametrize("sampling", ["weighted", "stratified"])
def test_order_of_the_batch_does_not_matter(make_model, normal, sampling):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    order = torch.tensor([3, 1, 4, 0, 2])
    options = {"beta": 4.0, "size": 30, "sampling": sampling}
    terms = beta_tcvae(model, x[order], noise[order], **options)
    torch.testing.assert_close(terms, beta_tcvae(model, x, noise, **options))


def test_weighted_gradient_does_not_depend_on_the_size(make_model, normal):
    model, x, noise = make_model(), normal(5, 3), normal(5, 2)
    gradients = [
        torch.autograd.grad(beta_tcvae(model, x, noise, beta=4.0, size=size).loss, list(model.parameters()))
        for size in (5, 5000)
    ]
    torch.testing.assert_close(*gradients)


def test_a_full_posterior_without_covariance_is_the_diagonal_one(constant_model, normal):
    weight = [[1.0, 2.0], [0.0, 1.0]]
    diagonal = constant_model([1.0, -1.0, -0.5, -2.0], weight)
    full = constant_model([1.0, -1.0, -0.5, -2.0, 0.0], weight, posterior="full")
    x, noise = normal(5, 2), normal(5, 2)
    options = {"beta": 4.0, "size": 30, "sampling": "stratified"}
    torch.testing.assert_close(
        beta_tcvae(diagonal, x, noise, **options), beta_tcvae(full, x, noise, **options)
    )


def test_a_point_posterior_is_refused(make_model, normal):
    with pytest.raises(ValueError, match="posterior must have a density, got a point"):
        beta_tcvae(make_model(posterior="point"), normal(4, 3), normal(4, 2), beta=4.0, size=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3, "sampling": "stratified"}, "size must be at least the batch of 4, got 3"),
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"size": 9, "sampling": "mss"}, "sampling must be 'weighted' or 'stratified', got 'mss'"),
    ],
)
def test_bad_options_are_refused(make_model, normal, options, message):
    with pytest.raises(ValueError, match=message):
        beta_tcvae(make_model(), normal(4, 3), normal(4, 2), beta=4.0, **options)


def test_a_batch_of_one_has_no_strata():
    with pytest.raises(ValueError, match="batch must be at least 2 for stratified sampling, got 1"):
        stratified_weights(1, 10)
