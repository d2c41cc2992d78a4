"""Rules of the choice between versions, of sequences that stay together, and of what settings may be."""

from __future__ import annotations

from collections import Counter

import pytest

from naiad.config.traffic import TrafficSettings, read_traffic, traffic_mistakes, traffic_of
from naiad.core.traffic.policy import Split, sequence_point
from naiad.core.traffic.sequences import MOST_OPEN, OpenSequences
from naiad.errors import Code, InferenceServerError


def test_each_version_has_as_many_points_as_weight():
    split = Split({1: 90, 2: 10})
    assert Counter(split.at(point / 1000) for point in range(1000)) == {1: 900, 2: 100}


def test_weights_have_any_unit():
    points = [point / 64 for point in range(64)]
    assert [Split({1: 0.25, 7: 0.75}).at(point) for point in points] == [Split({1: 1, 7: 3}).at(point) for point in points]


@pytest.mark.parametrize("weights", [{1: 0.1, 2: 0.2, 3: 0.7}, {1: 1e9, 2: 1e-9}, {5: 1}])
def test_the_last_point_belongs_to_the_last_version_that_has_room(weights):
    assert Split(weights).at(1 - 2**-53) in weights


def test_shares_add_up_to_one():
    assert Split({1: 90, 2: 10, 3: 100}).shares() == {1: 0.45, 2: 0.05, 3: 0.5}


def test_sequences_are_shared_by_weight_and_each_has_one_version():
    split = Split({1: 75, 2: 25})
    counts = Counter(split.for_sequence(number) for number in range(1, 2001))
    assert 1400 < counts[1] < 1600
    assert [split.for_sequence("a") for _ in range(5)] == [split.for_sequence("a")] * 5


def test_a_version_that_leaves_moves_only_its_own_sequences():
    before, after = Split({1: 1, 2: 1, 3: 1}), Split({1: 1, 2: 1})
    moved = {number for number in range(300) if before.for_sequence(number) != after.for_sequence(number)}
    assert moved == {number for number in range(300) if before.for_sequence(number) == 3}


def test_an_integer_and_its_digits_are_two_sequences_and_points_are_spread():
    assert sequence_point(5, "split") != sequence_point("5", "split")
    assert sequence_point(5, "split") != sequence_point(5, "shadow")
    points = [sequence_point(number, "split") for number in range(1000)]
    assert all(0 <= point < 1 for point in points)
    assert 400 < sum(point < 0.5 for point in points) < 600


def test_an_open_sequence_stays_where_it_is_whatever_the_weights_have_become():
    sequences, ready = OpenSequences(), {1, 2}
    assert sequences.choose("s", lambda _: 1, ready, is_start=True, is_end=False) == 1
    assert sequences.choose("s", lambda _: 2, ready, is_start=False, is_end=False) == 1
    assert sequences.choose("s", lambda _: 2, ready, is_start=False, is_end=True) == 1
    assert len(sequences) == 0
    assert sequences.choose("s", lambda _: 2, ready, is_start=False, is_end=False) == 2
    assert sequences.choose("s", lambda _: 1, ready, is_start=True, is_end=False) == 1


def test_a_sequence_moves_when_its_version_is_gone():
    sequences = OpenSequences()
    sequences.choose("s", lambda _: 1, {1, 2}, is_start=True, is_end=False)
    assert sequences.choose("s", lambda _: 2, {2}, is_start=False, is_end=False) == 2
    assert sequences.choose("s", lambda _: 1, {1, 2}, is_start=False, is_end=False) == 2


def test_the_memory_of_sequences_is_bounded_and_the_oldest_is_forgotten():
    sequences = OpenSequences()
    for number in range(MOST_OPEN + 1):
        sequences.choose(number, lambda _: 1, {1, 2}, is_start=True, is_end=False)
    assert len(sequences) == MOST_OPEN
    assert sequences.choose(1, lambda _: 2, {1, 2}, is_start=False, is_end=False) == 1
    assert sequences.choose(0, lambda _: 2, {1, 2}, is_start=False, is_end=False) == 2


def test_settings_are_read_with_versions_ascending_and_zeros_left_out():
    text = '{"weights": {"10": 10, "2": 90, "1": 0}, "shadow": {"3": 0.5, "4": 0}}'
    settings = traffic_of({"naiad_traffic": text})
    assert settings == TrafficSettings({2: 90, 10: 10}, {3: 0.5}, 16)
    assert list(settings.weights) == [2, 10]
    assert traffic_of({}) is None


def test_settings_read_back_what_they_say():
    settings = read_traffic({"weights": {"1": 1.5}, "shadow": {"2": 1}, "max_shadow_in_flight": 3})
    assert read_traffic(settings.to_json()) == settings


VERSION = 'must be the name of a version\'s folder, like "1"'
SHARE = "must be a number from 0 to 1000000000"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[]", "it must be a JSON object with 'weights', 'shadow' or both, got an array"),
        ("{}", "it must have 'weights', 'shadow' or both"),
        ('{"weight": {}, "shadow": {}}', "unknown member \"weight\", allowed are 'weights', 'shadow', 'max_shadow_in_flight'"),
        ('{"weights": 3}', "'weights' is 3, must be an object with a number for each version"),
        ('{"weights": {"one": 1}}', f"'weights' has the version \"one\", {VERSION}"),
        ('{"weights": {"01": 1}}', f"'weights' has the version \"01\", {VERSION}"),
        ('{"weights": {"-1": 1}}', f"'weights' has the version \"-1\", {VERSION}"),
        ('{"weights": {"\u0661": 1}}', f"'weights' has the version \"\\u0661\", {VERSION}"),
        ('{"weights": {"1": -1}}', f"'weights' of version \"1\" is -1, {SHARE}"),
        ('{"weights": {"1": true}}', f"'weights' of version \"1\" is true, {SHARE}"),
        ('{"weights": {"1": "5"}}', f'\'weights\' of version "1" is "5", {SHARE}'),
        ('{"weights": {"1": NaN}}', f"'weights' of version \"1\" is NaN, {SHARE}"),
        ('{"weights": {"1": 1e400}}', f"'weights' of version \"1\" is Infinity, {SHARE}"),
        (
            '{"weights": {"1": 0, "2": 0}}',
            "'weights' are all 0, one must be more; leave 'weights' empty for the latest version",
        ),
        ('{"shadow": {"3": 1.1}}', "'shadow' of version \"3\" is 1.1, must be a number from 0 to 1"),
        (
            '{"weights": {"3": 1}, "shadow": {"3": 1}}',
            "version 3 is in 'weights' and in 'shadow', it can be in one of them only",
        ),
        (
            '{"shadow": {"3": 1}, "max_shadow_in_flight": 0}',
            "'max_shadow_in_flight' is 0, must be an integer from 1 to 10000",
        ),
    ],
)
def test_each_mistake_names_field_value_and_what_is_allowed(text, mistake):
    assert traffic_mistakes(text) == [mistake]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"weights": ' + "9" * 5000 + "}"])
def test_text_that_is_no_json_is_a_mistake_and_no_fault(text):
    (mistake,) = traffic_mistakes(text)
    assert mistake.startswith(("it isn't JSON: ", "it must be"))
    assert len(mistake) < 500


def test_too_many_versions_are_refused():
    with pytest.raises(InferenceServerError) as caught:
        read_traffic({"weights": {str(number): 1 for number in range(101)}})
    assert (caught.value.code, caught.value.message) == (
        Code.INVALID_ARGUMENT,
        "'weights' has 101 versions, at most 100 are allowed",
    )


def test_all_mistakes_are_told_at_once():
    (text,) = traffic_mistakes('{"weights": {"x": 1}, "shadow": {"1": 2}, "max_shadow_in_flight": 1.5}')
    assert [part.split(" ")[0] for part in text.split("; ")] == ["'weights'", "'shadow'", "'max_shadow_in_flight'"]


def test_no_text_is_as_long_as_its_mistakes():
    (text,) = traffic_mistakes('{"weights": {}, ' + ", ".join(f'"m{number}": 1' for number in range(1000)) + "}")
    assert text.endswith("; 990 more mistakes")
    assert len(text) < 2000
