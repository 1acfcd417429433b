"""Links: what is written is read back, and nothing else is believed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unseam.explore.rotation import Rotation
from unseam.explore.state import State, displayed_point, first_state, from_query, model_point, to_query


def parsed(query):
    return dict(part.split("=") for part in query.split("&"))


def test_a_link_restores_the_state(exhibit):
    state = State(
        3, (0.25, -1.5, 2.0), item=7, rotation=Rotation(2, 0, 33.5), plane=(1, 2), space="factors", colour=4, other=1,
        same="item", follow=True,
    )  # fmt: skip
    assert from_query(exhibit, parsed(to_query(state))) == state


def test_an_empty_link_is_the_beginning(exhibit):
    assert from_query(exhibit, {}, 2) == first_state(exhibit, 2)
    assert first_state(exhibit, 2).z == (0.0, 0.0, 0.0)
    assert first_state(exhibit, 2).plane[0] in exhibit.codes(2).active or not exhibit.codes(2).active


def test_the_map_begins_with_the_factor_that_the_first_latent_knows_best(exhibit):
    state, codes = first_state(exhibit, 1), exhibit.codes(1)
    correlations = [
        abs(np.corrcoef(codes.mean[:, state.plane[0]], factor)[0, 1]) if factor.std() > 0 else 0.0
        for factor in exhibit.factors.double().numpy().T
    ]
    assert state.colour == int(np.argmax(correlations))


def test_an_item_without_a_point_is_encoded(exhibit):
    item = int(exhibit.index[5])
    assert from_query(exhibit, {"item": str(item)}).z == pytest.approx(
        exhibit.codes(0).mean[5].tolist(), abs=1e-5
    )
    assert from_query(exhibit, {"item": str(item), "z": "0,0,1"}).z == (0.0, 0.0, 1.0)


@given(st.tuples(*[st.floats(-1e3, 1e3)] * 3), st.floats(-360, 360))
def test_points_survive_a_turn(z, degrees):
    state = State(0, z, rotation=Rotation(0, 2, degrees))
    assert model_point(state, displayed_point(state)) == pytest.approx(z, abs=1e-9)
    assert displayed_point(state)[1] == z[1]


@pytest.mark.parametrize(
    "query, message",
    [
        ({"member": "9"}, "member must be a whole number below 5, got '9'"),
        ({"member": "-1"}, "member must be a whole number below 5, got '-1'"),
        ({"member": "../../etc/passwd"}, "member must be a whole number below 5"),
        ({"member": "²"}, "member must be a whole number below 5"),
        ({"z": "1,2"}, "z must hold 3 numbers, got '1,2'"),
        ({"z": "1,2,x"}, "z must be a number, got 'x'"),
        ({"z": "1,2,nan"}, r"z must lie in \[-1e\+06, 1e\+06\], got 'nan'"),
        ({"z": "1,2,1e9"}, r"z must lie in"),
        ({"item": "100000"}, "item must be a whole number below 72"),
        ({"rotation": "0,1"}, "rotation must be two latents and an angle"),
        ({"rotation": "1,1,30"}, "rotation must name two different latents below 3, got 1 and 1"),
        ({"rotation": "0,1,1e5"}, r"rotation must lie in \[0, 90\]"),
        ({"rotation": "0,1,-1"}, r"rotation must lie in \[0, 90\]"),
        ({"rotation": "0,1,nan"}, r"rotation must lie in \[0, 90\], got 'nan'"),
        ({"map": "0,1"}, "map must be what it shows, two axes and a colour"),
        ({"map": "disk,0,1,0"}, "map must be latents or factors, got 'disk'"),
        ({"map": "latents,0,9,0"}, "map must be a whole number below 3"),
        ({"other": "5"}, "other must be a whole number below 5"),
        ({"member": "2", "other": "2"}, "other must be another model than member, got 2 for both"),
        ({"same": "path"}, "same must be z or item, got 'path'"),
        ({"follow": "yes"}, "follow must be 0 or 1, got 'yes'"),
        ({"file": "/etc/passwd"}, "a link has no parameter 'file'"),
        ({"z": "1," * 20_000}, "the link must be shorter than 20000 characters"),
    ],
)
def test_bad_parameters_get_a_message(exhibit, query, message):
    with pytest.raises(ValueError, match=message):
        from_query(exhibit, query)


def test_no_item_without_a_world(linear):
    with pytest.raises(ValueError, match="item must be absent: there is no world"):
        from_query(linear, {"item": "0"})
    with pytest.raises(ValueError, match="map must be latents, got 'factors'"):
        from_query(linear, {"map": "factors,0,1,0"})


def test_no_plane_of_factors_without_codes():
    from unseam.data import load
    from unseam.explore import exhibit_decoder

    blind = exhibit_decoder(lambda z: z.repeat(1, 2)[:, :3], latent=2, world=load("linear", size=20))
    with pytest.raises(ValueError, match="map must be latents, got 'factors'"):
        from_query(blind, {"map": "factors,0,1,0"})
    assert from_query(blind, {"item": "3"}).item == 3


@given(
    st.dictionaries(
        st.sampled_from(["member", "z", "rotation", "map", "item", "other"]), st.text(max_size=30)
    )
)
def test_no_link_does_anything_but_parse_or_say_why(query):
    from unseam.explore import exhibit_decoder

    small = exhibit_decoder(lambda z: 2 * z, latent=2)
    try:
        assert isinstance(from_query(small, query), State)
    except ValueError as error:
        assert len(str(error)) < 200
