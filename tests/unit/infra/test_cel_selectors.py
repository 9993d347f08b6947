"""Device selectors: Kubernetes' answers, limits, and what the errors tell."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cel import Answer, Device, Match, Reference, SelectorError, Version, compile_selector
from infra.cel import budget as cel_budget
from infra.cel.selector import MAX_PATTERNS, pattern_weight

DATA = Path(__file__).parents[2] / "data"
ROWS = json.loads((DATA / "cel-selectors.json").read_text())
MORE = json.loads((DATA / "cel-kubernetes-0.37.json").read_text())
H100 = Device.from_manifest(MORE["device"])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TEN = "[0,1,2,3,4,5,6,7,8,9]"


def answer(text: str, device: Device) -> str:
    try:
        return str(compile_selector(text).matches(device).answer)
    except SelectorError:
        return "compile-error"


def nested(depth: int) -> str:
    return "true" if not depth else f"{TEN}.all(x{depth}, {nested(depth - 1)})"


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_recorded_answers_of_kubernetes(row: dict[str, Any]) -> None:
    assert answer(row["expr"], Device.from_manifest(row["device"])) == row["k8s_0_37"]


def test_all_rows_and_all_kinds_of_answer_are_there() -> None:
    assert len(ROWS) == 86
    assert {row["k8s_0_37"] for row in ROWS} == {str(a) for a in Answer}
    # Nothing to choose between the two versions in these rows.
    assert all(row["k8s_0_33"] == row["k8s_0_37"] for row in ROWS)


def test_more_recorded_answers() -> None:
    assert len(MORE["rows"]) > 200
    wrong = [(r["expr"], r["k8s_0_37"]) for r in MORE["rows"] if answer(r["expr"], H100) != r["k8s_0_37"]]
    assert wrong == []


def test_known_differences_are_as_written_down() -> None:
    """Where we are stricter or simpler than Kubernetes: if one of these changes, the list is to be updated."""
    changed = [(r["expr"], r["ours"]) for r in MORE["differences"] if answer(r["expr"], H100) != r["ours"]]
    assert changed == []
    # Never the dangerous way round: a device that matches here matches there.
    assert all(r["ours"] != "true" for r in MORE["differences"])


# ------------------------------------------------------------------------------------------------- limits


def test_five_nested_loops_are_allowed_and_six_are_not() -> None:
    assert answer(nested(5), H100) == "true"
    match = compile_selector(nested(6)).matches(H100)
    assert match.answer is Answer.EVAL_ERROR
    assert "cost limit exceeded" in match.reason


@pytest.mark.parametrize(
    "text",
    [
        f"!{nested(12)} || true",
        "lists.range(1000000000).size() > 0",
        "lists.range(900000).distinct().size() > 0",
        '"aaaa"' + '.replace("a","aaaaaaaaaaaaaaaaaaaa")' * 12 + ".size() > 0",
    ],
)
def test_a_spent_budget_is_never_an_answer(text: str) -> None:
    match = compile_selector(text).matches(H100)
    assert match.answer is Answer.EVAL_ERROR
    assert "cost limit exceeded" in match.reason


@pytest.mark.parametrize("start", ['"aaaaaaaaaa"', "[1,2,3,4,5,6,7,8,9,0]"])
def test_doubling_is_stopped(start: str) -> None:
    levels = 27
    text = f"cel.bind(a0, {start}, " + "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, levels))
    text += f"a{levels - 1}.size() > 0" + ")" * levels
    assert "cost limit exceeded" in compile_selector(text).matches(H100).reason


def test_the_budget_is_counted_anew_for_each_device() -> None:
    selector = compile_selector(nested(5))
    for index in range(2):
        assert selector.matches(Device.of("d", {"index": index}))
    with cel_budget.fresh(0):
        assert not cel_budget.exhausted()


def test_a_selector_that_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(SelectorError, match="10240"):
        compile_selector("true" + " " * 11_000)
    with pytest.raises(SelectorError, match="nest it less"):
        compile_selector("(" * 100 + "true" + ")" * 100)


# ------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ('device.capacity["gpu.nvidia.com"].memory == 1', 1, 42, 'compareTo(quantity("40Gi"))'),
        ('device.driver == "a"\n  and true', 2, 3, "&&"),
        ('foo(device.driver) == "a"', 1, 4, "only `device` is known"),
        ("device.driver", 1, 1, "gives string, not a boolean"),
        ('quantity("1").sign() == 1', 1, 19, "name(x)"),
        ('compareTo(quantity("1"), quantity("2")) == 0', 1, 10, "x.name(...)"),
        ('device.attributes["gpu.nvidia.com/architecture"] == "Hopper"', 1, 50, "a domain and a name"),
        ('has(device.capacity["gpu.nvidia.com"])', 1, 20, "needs a field"),
        ('"a".find("a") == "a"', 1, 9, "not offered"),
        ('device.driver == "x" &&\n device.driver.matches("(")', 2, 24, "RE2"),
    ],
)
def test_compile_errors_say_where_and_what_to_do(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('device.attributes["gpu.nvidia.com"].nope == "x"', "no 'nope' there"),
        ('device.attributes["gpu.nvidia.com"].cudaComputeCapability == "9.0.0"', "compare it with semver"),
        ('device.attributes["gpu.nvidia.com"].index', "is of type int, not a boolean"),
        ('quantity("1,5") == quantity("1")', "no Kubernetes quantity"),
        ("lists.range(20000).all(x, x >= 0)", "more than 10,000 elements"),
    ],
)
def test_evaluation_errors_have_a_reason(text: str, says: str) -> None:
    match = compile_selector(text).matches(H100)
    assert match.answer is Answer.EVAL_ERROR
    assert not match
    assert says in match.reason


def test_a_malformed_version_or_capacity_fails_the_whole_device() -> None:
    selector = compile_selector("true")
    broken = selector.matches(Device.of("d", {"v": Version("9.0")}))
    assert broken.answer is Answer.EVAL_ERROR
    assert "attribute v" in broken.reason
    assert "capacity memory" in selector.matches(Device.of("d", capacity={"memory": "80 GB"})).reason
    assert "NUL" in selector.matches(Device.of("d", {"s": "a\0b"})).reason
    assert "64 bits" in selector.matches(Device.of("d", {"n": 2**63})).reason


# ------------------------------------------------------------------------------------- semantics, caching


def test_an_unknown_domain_is_an_empty_map_and_still_not_there() -> None:
    for text in (
        'device.attributes["zzz"].size() == 0 && !("zzz" in device.attributes)',
        'cel.bind(a, device.attributes, a["zzz"].size() == 0 && !("zzz" in a))',
        'device.attributes["z" + "zz"].size() == 0',
        'has(device.attributes["gpu.nvidia.com"].index) && !has(device.attributes["zzz"].index)',
    ):
        assert answer(text, H100) == "true", text


def test_references_name_what_is_read() -> None:
    text = (
        'device.driver == "x" && device.capacity["g"].memory.isLessThan(quantity("1")) '
        '&& device.attributes["g"][?"arch"].hasValue() && device.attributes["h"]["index"] == 1'
    )
    assert set(compile_selector(text).reads) == {
        Reference("driver"),
        Reference("capacity", "g", "memory"),
        Reference("attributes", "g", "arch"),
        Reference("attributes", "h", "index"),
    }


def test_compiled_selectors_and_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = compile_selector('device.driver == "kept"')
    assert compile_selector('device.driver == "kept"') is selector
    calls = []
    plain = selector._evaluate

    def counted(device: Device) -> Match:
        calls.append(device)
        return plain(device)

    monkeypatch.setattr(selector, "_evaluate", counted)
    for _ in range(3):
        assert selector.matches(Device.of("kept", {"index": 1}))
    # Equal content is one device; True and 1 are not equal content.
    assert selector.matches(Device.of("kept", {"index": True}))
    assert len(calls) == 2


def test_threads_do_not_share_a_budget() -> None:
    heavy, light = compile_selector(nested(6)), compile_selector(f"{TEN}.all(x, x < 20)")
    answers: dict[int, set[str]] = {}

    def work(number: int) -> None:
        selector = heavy if number % 2 else light
        answers[number] = {str(selector.matches(Device.of("d", {"n": number})).answer)}

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {0: {"true"}, 1: {"eval-error"}, 2: {"true"}}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_compiled_or_refused_with_a_place(text: str) -> None:
    refused = place_of(text)
    if refused is None:
        assert compile_selector(text).matches(H100).answer in set(Answer) - {Answer.COMPILE_ERROR}
    else:
        assert min(refused) >= 1


def place_of(text: str) -> tuple[int, int] | None:
    """Line and column of the error; None if the selector compiles."""
    try:
        compile_selector(text)
    except SelectorError as error:
        return error.line, error.column
    return None


@settings(max_examples=30, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
)
def test_attribute_values_arrive_as_they_are(text: str, number: int, flag: bool) -> None:
    device = Device.of("d", {"s": text, "i": number, "b": flag})
    read = 'device.attributes["d"]'
    assert answer(f"{read}.s == {json.dumps(text, ensure_ascii=False)}", device) == "true"
    assert answer(f"{read}.s.size() == {len(text)}", device) == "true"
    assert answer(f"{read}.b == {json.dumps(flag)}", device) == "true"
    assert answer(f"{read}.b == {1 if flag else 0}", device) == "false"
    if number >= 0:
        assert answer(f"{read}.i == {number}", device) == "true"


def test_a_device_of_another_shape_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"attributes\.a"):
        Device.from_manifest({"driver": "d", "attributes": {"a": {"string": 1}}})
    with pytest.raises(ValueError, match=r"capacity\.m"):
        Device.from_manifest({"driver": "d", "capacity": {"m": {"amount": "1"}}})
    with pytest.raises(ValueError, match="driver"):
        Device.from_manifest({"attributes": {}})


@pytest.mark.parametrize(
    "pattern", [r"\pL{1,100}", r"(\pL{1,100}){1,10}", r"(x|\pL|\PN|\pS){40}", "[a-z]{1000}{3}", r"((\W{20}){20}){20}"]
)
def test_a_pattern_that_takes_long_to_compile_is_not_compiled(pattern: str) -> None:
    name = 'device.attributes["gpu.nvidia.com"].productName'
    with pytest.raises(SelectorError, match="too long to compile") as refused:
        compile_selector(f"true || {name}.matches({json.dumps(pattern)})")
    assert refused.value.line == 1
    several = " || ".join(f'{name}.matches("{number}[0-9]{{1,25}}")' for number in range(4))
    compile_selector(several)
    with pytest.raises(SelectorError, match="too long to compile"):
        compile_selector(" || ".join([several] * 2))


@pytest.mark.parametrize("pattern", ["^NVIDIA-H[0-9]{3}.*$", "^(H100|H200|GB200).*(SXM|PCIe|NVL)$", r"\pL+", "a{0}"])
def test_patterns_that_people_write_are_light(pattern: str) -> None:
    assert pattern_weight(pattern) < MAX_PATTERNS / 10
