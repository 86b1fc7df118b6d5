"""The command `finetune`, run as a person runs it: results, checkpoints, a kill, and what goes wrong."""

from __future__ import annotations

import io
import json
import math
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import RLX_EDGE, here
from onnx import helper
from onnx_models import make_model, random_array

from rlx_edge.data import Data, load_data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.formats.load import load
from rlx_edge.formats.onnx import load_onnx
from rlx_edge.ir import Array, DType
from rlx_edge.qat import prepare
from rlx_edge.qat.best import best_of, few_held_out
from rlx_edge.qat.settings import FEW, Epoch, Settings
from rlx_edge.quant import quality
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.widths import everywhere
from rlx_edge.report import finetune_lines
from rlx_edge.report.finetune_tables import verdict

torch = pytest.importorskip("torch", reason="torch is an extra: make test-qat")

from rlx_edge.qat.checkpoint import identity, read_checkpoint, restore, save_checkpoint  # noqa: E402
from rlx_edge.qat.finetune import Job, check_start, choices, finetune, rows  # noqa: E402
from rlx_edge.qat.train import Training, mixed, split  # noqa: E402

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
COMMAND = ("finetune", DIGITS / "digits.onnx", "--data", DIGITS / "digits_calibration.npz", "--weights", "2")
WAIT_S = 100


TWELVE = ("--epochs", "12", "--patience", "12")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], str]:
    """A training that nothing interrupts, its JSON, and what it says meanwhile."""
    folder = tmp_path_factory.mktemp("trained")
    code, shown, said = here(*COMMAND, *TWELVE, "-o", folder / "digits.rlx", "--plot", folder / "curve.svg", "--json")
    assert code == 0
    return folder, json.loads(shown), said


def test_the_result_is_better_and_says_what_happened(trained: tuple[Path, dict[str, object], str]) -> None:
    folder, facts, _ = trained
    assert facts["schema"] == "rlx-edge finetune 1"
    assert facts["weights"] == {"i2": 5}
    history, best = facts["history"], facts["best_epoch"]
    assert isinstance(history, list)
    assert isinstance(best, int)
    assert [row["epoch"] for row in history] == list(range(len(history)))
    losses = [row["held_out_loss"] for row in history]
    assert best == losses.index(min(losses)) > 0
    assert losses[best] < losses[0]
    assert history[0]["loss"] is None
    assert "finetune" in load(folder / "digits.rlx").metadata
    assert sorted(path.name for path in folder.iterdir()) == ["curve.svg", "digits.rlx"]


def test_the_figures_are_those_of_the_file(trained: tuple[Path, dict[str, object], str]) -> None:
    """Quality as the JSON has it, worked out again on the samples that were held out."""
    folder, facts, _ = trained
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph)
    kept, _ = split(len(data), Settings())
    held = Data({name: values[kept] for name, values in data.inputs.items()})
    int8 = load(folder / "digits.rlx")
    found = quality(graph, int8, held)
    assert facts["quality"]["end"]["agreement"] == pytest.approx(found.agreement)  # type: ignore[index]
    assert facts["held_out"] == len(held)
    assert {node.type.dtype for node in int8.nodes if node.name.endswith(".weight")} <= {DType.I2}


def test_each_epoch_is_a_line_with_its_time(trained: tuple[Path, dict[str, object], str]) -> None:
    _, facts, said = trained
    lines = [line for line in said.splitlines() if line.startswith("epoch ")]
    assert lines[0].startswith("epoch 0 of 12, the start: held out ")
    for number, line in enumerate(lines[1:13], 1):
        assert re.fullmatch(
            rf"epoch {number} of 12: loss \S+, held out \S+, \S+ dB, agreement \S+% "
            r"\((best|(worse than the start; )?best: (the start|epoch \d+))\); \d+\.\d s, at most \S+ s left",
            line,
        )
    assert lines[12].endswith("at most 0 s left")
    few = "13 held-out samples: differences below 8 points mean little"
    assert said.startswith(f"warning: {few}")
    assert few in facts["warnings"][0]  # type: ignore[index]


def test_the_picture_says_what_it_shows(trained: tuple[Path, dict[str, object], str]) -> None:
    """Matplotlib writes each text into an .svg as a comment beside its outlines."""
    folder, facts, _ = trained
    texts = re.findall(r"<!-- (.*?) -->", (folder / "curve.svg").read_text(encoding="utf-8"))
    for wanted in (
        "training with rounding, measured on 13 held-out samples",
        "epoch (0: the start, as quantized; dashed: what it had)",
        f"kept: epoch {facts['best_epoch']}",
        *("loss (log scale)", "output SQNR, dB", "held-out samples, %", "agreement"),
    ):
        assert wanted in texts


class CtrlC(io.StringIO):
    """Standard error, read by somebody who presses Ctrl-C at a line."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line, self.pressed = line, False

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.line in text and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)
        return written


def test_a_stopped_and_killed_training_resumes_to_the_same_bytes(
    trained: tuple[Path, dict[str, object], str], tmp_path: Path
) -> None:
    """Ctrl-C after some epochs, and after some more a kill of a real process, whose lines come through a pipe as epochs
    end; what it writes just then must not matter."""
    out, checkpoint = tmp_path / "digits.rlx", tmp_path / "digits.checkpoint"
    words = (*map(str, COMMAND), *TWELVE, "-o", str(out))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # In the background of a shell there is none.
    code, _, shown = here(*words, err=CtrlC("epoch 2 of 12: "))
    signal.signal(signal.SIGINT, handler)
    said = shown.splitlines()
    assert code == 130
    assert said[-1] == "rlx-edge: interrupted"
    saved = re.fullmatch(
        rf"epoch (\d+) of 12 is saved in {re.escape(str(checkpoint))}; the same command with --resume goes on", said[-2]
    )
    assert saved is not None
    killed = [str(RLX_EDGE), *words, "--resume"]
    with subprocess.Popen(killed, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        seen = [line for line, _ in zip((x for x in process.stderr if x.startswith("epoch")), range(2), strict=False)]
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert seen[0].startswith(f"epoch {saved[1]} of 12, the last saved: ")
    assert seen[1].startswith(f"epoch {int(saved[1]) + 1} of 12: ")
    assert checkpoint.exists()
    assert not out.exists()
    code, shown, _ = here(*words, "--resume", "--json")
    assert code == 0
    folder, facts, _ = trained
    assert json.loads(shown)["history"] == facts["history"]
    assert out.read_bytes() == (folder / "digits.rlx").read_bytes()
    assert not checkpoint.exists()


def test_labels_are_trained_by_when_they_are_named(tmp_path: Path) -> None:
    options = ("--labels", "y", "--no-distill", "--epochs", "2", "-o", tmp_path / "digits.rlx", "--json")
    code, shown, said = here(*COMMAND, *options)
    assert code == 0
    facts = json.loads(shown)
    assert len(re.findall(r"^epoch \d of 2.* top-1 \d+\.\d%", said, re.MULTILINE)) == 3
    for name, at in (("start", 0), ("end", facts["best_epoch"])):
        assert facts["quality"][name]["top1"] == pytest.approx(facts["history"][at]["top1"])
    assert facts["settings"]["labels"]
    assert not facts["settings"]["distill"]
    assert all(0 <= row["top1"] <= 1 for row in facts["history"])


def test_early_end_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate at which nothing improves ends the training; the first model is kept then. Of 40 epochs every other one
    would be shown, but where they take long, each is."""
    monkeypatch.setattr(finetune_lines, "SILENCE_S", 0.0)
    options = ("--epochs", "40", "--patience", "2", "--learning-rate", "1e-9", "-o", tmp_path / "digits.rlx")
    code, shown, said = here(*COMMAND, *options)
    assert code == 0
    assert "ended early" in said
    assert "epoch 1 of 40: " in said
    assert "the result is as `quantize` makes it" in said
    assert re.search(r" 0 .* start, kept", shown)
    for name in ("before", "after"):
        assert re.search(
            rf"^{name}: output SQNR \S+ dB, agreement \S+%, top-1 \S+% \(float \S+%\) over 13", shown, re.M
        )


def arrays(path: Path, **changes: Array) -> Path:
    with np.load(DIGITS / "digits_calibration.npz") as file:
        np.savez(path, **{**file, **changes})
    return path


def test_what_goes_wrong_is_one_line(tmp_path: Path, trained: tuple[Path, dict[str, object], str]) -> None:
    out = tmp_path / "digits.rlx"
    with np.load(DIGITS / "digits_calibration.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int64)
    x[3, 0, 2, 2] = np.nan
    model = ("finetune", DIGITS / "digits.onnx", "-o", out, "--weights", "4")
    wrong = ("--data", arrays(tmp_path / "labels.npz", y=np.where(y == 3, 77, y)), "--labels", "y")
    data = ("--data", DIGITS / "digits_calibration.npz")
    cases = [
        (("--data", arrays(tmp_path / "nan.npz", x=x)), "holds NaN"),
        ((*wrong,), "labels from 0 to 77, but the model has 10 classes"),
        ((*data, "--labels", "z"), "no labels 'z'"),
        ((*data, "--no-distill"), "nothing to train by"),
        ((*data, "--learning-rate", "0"), "a learning rate of 0"),
        ((*data, "--seed", "-1"), "a seed of -1"),
        ((*data, "--resume"), "no checkpoint to resume from"),
        ((*data, "--device", "tpu"), "no device 'tpu'"),
        ((*data, "--device", "cpu:1"), "no device 'cpu:1'"),
        ((*data, "--threads", "0"), "0 threads: 1 or more are needed"),
        ((*data, "--weights", "auto"), "belongs to `quantize`"),
    ]
    if torch.cuda.is_available():
        cases.append(((*data, "--device", "cuda:99"), "no device 'cuda:99' here; there are cpu, cuda, cuda:0"))
    else:
        cases.append(((*data, "--device", "cuda"), "finds no CUDA device here; use --device cpu"))
    calls = [((*model, *words), wanted) for words, wanted in cases]
    again = ("finetune", trained[0] / "digits.rlx", "-o", out, *data)
    calls.append(
        (again, "is quantized already, and training starts from the float model: give that one, with the --we")
    )
    for words, wanted in calls:
        code, shown, said = here(*words)
        assert (code, shown) == (2, "")
        assert wanted in said
        assert len([line for line in said.splitlines() if not line.startswith("warning: 13 held-out")]) == 1
    assert not list(tmp_path.glob("digits*"))


def job(settings: Settings, bits: int = 4) -> Job:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph)
    return Job(graph, data, Recipe(weights=everywhere(bits, "nearest")), settings)


def training(settings: Settings, bits: int = 4) -> Training:
    made = job(settings, bits)
    return Training(prepare(made.graph, made.data, made.recipe), made.data, settings)


def test_one_thread_whatever_the_machine_has(trained: tuple[Path, dict[str, object], str]) -> None:
    """Sums depend on the number of threads, so it is the job's, and one of what a checkpoint is of."""
    asked = job(Settings(epochs=1, batch=128))
    asked = replace(asked, data=rows(asked.data, slice(0, 16)), threads=2)
    _, facts, _ = trained
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        seen: list[int] = []
        finetune(asked, after_epoch=lambda _: seen.append(torch.get_num_threads()))
        assert seen == [2, 2]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert choices(asked)["threads"] == 2
    assert job(Settings()).threads == 1 == facts["settings"]["threads"]  # type: ignore[index]


def epochs(*rows: tuple[float, float, float, float | None]) -> list[Epoch]:
    return [Epoch(i, math.nan if i == 0 else 1.0, *row) for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        (epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 22, 0.9, None)), 2),
        (epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 22, 0.8, None)), 1),
        (epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 22, 0.88, None)), 2),
        (epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 22, 0.87, None)), 1),
        (epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 19, 0.9, None)), 1),
        (epochs((3, 20, 0.9, None), (2, 19, 1.0, None), (1, 22, 0.8, None)), 0),
        (epochs((3, 20, 0.9, 0.94), (2, 15, 0.8, 0.94), (1, 25, 1.0, 0.92)), 1),
        (epochs((3, 20, 0.9, 0.94), (4, 21, 0.9, 0.99)), 0),
    ],
)
def test_the_least_loss_is_kept_where_nothing_asked_for_is_worse_than_at_the_start(
    history: list[Epoch], kept: int
) -> None:
    assert best_of(history).epoch == kept
    (*found,) = verdict(history)
    least = min(history, key=lambda epoch: epoch.held_out_loss).epoch
    assert (f"epoch {least} has the least loss, but was not kept" in " ".join(found)) == (least != kept)
    assert ("no epoch was better" in " ".join(found)) == (kept == 0)


def test_what_was_worse_is_said() -> None:
    (said,) = verdict(epochs((3, 20, 0.9, 0.94), (2, 15, 0.8, 0.94), (1, 25, 1.0, 0.92)))
    assert said.endswith("it is worse than the start (top-1 92.0% after 94.0%)")
    (said,) = verdict(epochs((3, 20, 0.9, None), (2, 21, 0.9, None), (1, 19, 0.95, None)))
    assert said.endswith("it is worse than the start (output SQNR 19.00 dB after 20.00 dB)")


def test_the_module_of_the_kept_epoch_is_what_training_leaves() -> None:
    """A start of which no epoch reaches the top-1: its parameters stay, however the loss falls, and training goes on
    to the end while it does."""
    run = training(Settings(epochs=4, patience=1, labels=True), bits=2)
    start = {name: values.clone() for name, values in run.module.state_dict().items()}
    run.history[0] = replace(run.history[0], top1=2.0)
    run.run()
    assert run.history[1].held_out_loss < run.history[0].held_out_loss
    assert len(run.history) > 2
    assert run.best_epoch.epoch == 0
    for name, values in run.module.state_dict().items():
        assert torch.equal(values, start[name])


def test_few_samples_held_out_are_told() -> None:
    assert few_held_out(100) == ()
    assert few_held_out(1)[0].startswith("1 held-out sample: differences below 100 points")
    assert few_held_out(50)[0].startswith("50 held-out samples: differences below 4 points")


def test_outputs_that_are_no_classes_have_no_agreement() -> None:
    """As many as an input has, as those of an autoencoder."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = make_model([node], {"x": (1, 6)}, ["y"], {"w": random_array((6, 6))})
    graph, data = load_onnx(model.SerializeToString()), Data({"x": random_array((8, 6))})
    run = Training(prepare(graph, data, Recipe()), data, Settings(epochs=1))
    assert run.history[0].agreement is None
    assert run.best_epoch is run.history[0]


def test_a_rate_that_is_too_high_is_told() -> None:
    with pytest.raises(
        EdgeError, match=r"training diverged in epoch \d+: .*lower the learning rate, 1e\+06, to a tenth"
    ):
        training(Settings(learning_rate=1e6, epochs=6)).run()


def test_checkpoints_are_of_one_training(tmp_path: Path) -> None:
    first = training(Settings(epochs=3))
    first.epoch()
    graph, path = first.module.graph, tmp_path / "a.checkpoint"
    ours = identity(graph, first.data, {"seed": 0, "bits": 4})
    save_checkpoint(path, first, ours)
    again = training(Settings(epochs=3))
    again.restore(read_checkpoint(path, ours))
    assert list(map(repr, again.history)) == list(map(repr, first.history))  # A NaN is not equal to itself.
    other_data = Data({name: values[:20] for name, values in first.data.inputs.items()})
    for wanted, words in [
        (identity(load(DIGITS / "digits.onnx"), other_data, {}), "another model"),
        (identity(graph, other_data, {"seed": 0, "bits": 4}), "other data"),
        (identity(graph, first.data, {"seed": 1, "bits": 4}), "seed 0, not 1"),
    ]:
        with pytest.raises(EdgeError, match=words):
            read_checkpoint(path, wanted)
    start = first.history[0]
    check_start(job(first.settings), start, start)
    with pytest.raises(EdgeError, match="another machine, or another OMP_NUM_THREADS"):
        check_start(job(first.settings), start, replace(start, sqnr_db=start.sqnr_db + 1e-9))
    whole = path.read_bytes()
    path.write_bytes(whole[:2000])
    with pytest.raises(EdgeError, match="no readable checkpoint"):
        read_checkpoint(path, ours)
    place = whole.index(bytes(next(iter(first.module.state_dict().values())).numpy().tobytes()))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(EdgeError, match="damaged"):
        read_checkpoint(path, ours)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": 3},
        *({"identity": {"model": "", "data": ""}}, {"history": []}, {"history": [{"a": 1}]}),
        *({"module": {}}, {"best": {}}, {"optimizer": {}}),
    ],
    ids=repr,
)
def test_a_checkpoint_with_other_contents_is_damaged(change: dict[str, object], tmp_path: Path) -> None:
    first = training(Settings(epochs=3))
    path, ours = tmp_path / "a.checkpoint", identity(first.module.graph, first.data, {"seed": 0})
    save_checkpoint(path, first, ours)
    content = torch.load(path, weights_only=True) | change
    torch.save(content, path)
    with pytest.raises(EdgeError, match=r"damaged|another model"):
        restore(path, training(Settings(epochs=3)), read_checkpoint(path, ours))


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    made = []
    for seed in (0, 0, 1):
        run = training(Settings(epochs=2, seed=seed), bits=2)
        run.epoch()
        made.append(torch.cat([parameter.detach().flatten() for parameter in run.module.parameters()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_mixing_makes_averages_of_two_samples() -> None:
    x = torch.eye(64)
    (found,) = mixed([x], 1.0, np.random.default_rng(0))
    torch.testing.assert_close(found.sum(1), torch.ones(64))
    assert ((found > 0).sum(1) <= 2).all()
    assert ((found > 0).sum(1) == 2).sum() > 50
    assert mixed([x], 0.0, np.random.default_rng(0))[0] is x
    assert Settings().mix_for(FEW - 1) > 0 == Settings().mix_for(FEW) == Settings(labels=True).mix_for(5)


def test_held_out_samples_are_not_trained_on() -> None:
    kept, rest = split(100, Settings(held_out=0.25))
    assert len(kept) == 25
    assert sorted([*kept, *rest]) == list(range(100))
    with pytest.raises(DataError, match="1 samples"):
        split(1, Settings())
