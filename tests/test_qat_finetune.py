"""The command `finetune`, run as a person runs it: results, checkpoints, a kill, and what goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from command import RLX_EDGE, good, refused

from rlx_edge.cli import main
from rlx_edge.data import Data, load_data
from rlx_edge.errors import DataError, EdgeError
from rlx_edge.formats.load import load
from rlx_edge.ir import Array, DType
from rlx_edge.qat import prepare
from rlx_edge.qat.settings import FEW, Settings
from rlx_edge.quant import quality
from rlx_edge.quant.recipe import Recipe
from rlx_edge.quant.widths import everywhere

torch = pytest.importorskip("torch", reason="torch is an extra: make test-qat")

from rlx_edge.qat.checkpoint import identity, read_checkpoint, restore, save_checkpoint  # noqa: E402
from rlx_edge.qat.train import Training, mixed, split  # noqa: E402

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
COMMAND = ("finetune", DIGITS / "digits.onnx", "--data", DIGITS / "digits_calibration.npz", "--weights", "2")
WAIT_S = 100


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A training that nothing interrupts, and its JSON."""
    folder = tmp_path_factory.mktemp("trained")
    shown = good(*COMMAND, "--epochs", "12", "-o", folder / "digits.rlx", "--plot", folder / "curve.svg", "--json")
    return folder, json.loads(shown)


def test_the_result_is_better_and_says_what_happened(trained: tuple[Path, dict[str, object]]) -> None:
    folder, facts = trained
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


def test_the_figures_are_those_of_the_file(trained: tuple[Path, dict[str, object]]) -> None:
    """Quality as the JSON has it, worked out again on the samples that were held out."""
    folder, facts = trained
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph)
    kept, _ = split(len(data), Settings())
    held = Data({name: values[kept] for name, values in data.inputs.items()})
    int8 = load(folder / "digits.rlx")
    found = quality(graph, int8, held)
    assert facts["quality"]["end"]["agreement"] == pytest.approx(found.agreement)  # type: ignore[index]
    assert facts["held_out"] == len(held)
    assert {node.type.dtype for node in int8.nodes if node.name.endswith(".weight")} <= {DType.I2}


def test_a_killed_training_resumes_to_the_same_bytes(trained: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    """A real process, killed after some epochs; what is written while it is killed must not matter."""
    out, checkpoint = tmp_path / "digits.rlx", tmp_path / "digits.checkpoint"
    words = [str(RLX_EDGE), *map(str, COMMAND), "--epochs", "12", "-o", str(out)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch 4 of 12"):
                process.send_signal(signal.SIGKILL)
                break
        process.wait(WAIT_S)
    assert process.returncode == -signal.SIGKILL
    assert checkpoint.exists()
    assert not out.exists()
    shown = json.loads(good(*COMMAND, "--epochs", "12", "-o", out, "--resume", "--json"))
    folder, facts = trained
    assert shown["history"] == facts["history"]
    assert out.read_bytes() == (folder / "digits.rlx").read_bytes()
    assert not checkpoint.exists()


def here(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, run in this process: PyTorch loads slowly."""
    with patch.object(sys, "argv", ["rlx-edge", *map(str, words)]), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_labels_are_trained_by_when_they_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--labels", "y", "--no-distill", "--epochs", "2", "-o", tmp_path / "digits.rlx", "--json")
    code, shown, _ = here(capsys, *COMMAND, *options)
    assert code == 0
    facts = json.loads(shown)
    assert facts["settings"]["labels"]
    assert not facts["settings"]["distill"]
    assert all(0 <= row["top1"] <= 1 for row in facts["history"])


def test_early_end_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rate at which nothing improves ends the training; the first model is kept then."""
    options = ("--epochs", "40", "--patience", "2", "--learning-rate", "1e-9", "-o", tmp_path / "digits.rlx")
    code, shown, said = here(capsys, *COMMAND, *options)
    assert code == 0
    assert "ended early" in said
    assert "kept" in shown
    assert "before: output SQNR" in shown


def arrays(path: Path, **changes: Array) -> Path:
    with np.load(DIGITS / "digits_calibration.npz") as file:
        np.savez(path, **{**file, **changes})
    return path


def test_what_goes_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "digits.rlx"
    with np.load(DIGITS / "digits_calibration.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int64)
    x[3, 0, 2, 2] = np.nan
    model = ("finetune", DIGITS / "digits.onnx", "-o", out, "--weights", "4")
    assert "holds NaN" in refused(*model, "--data", arrays(tmp_path / "nan.npz", x=x))
    wrong = ("--data", arrays(tmp_path / "labels.npz", y=np.where(y == 3, 77, y)), "--labels", "y")
    data = ("--data", DIGITS / "digits_calibration.npz")
    cases = [
        ((*wrong,), "labels from 0 to 77, but the model has 10 classes"),
        ((*data, "--labels", "z"), "no labels 'z'"),
        ((*data, "--no-distill"), "nothing to train by"),
        ((*data, "--learning-rate", "0"), "a learning rate of 0"),
        ((*data, "--seed", "-1"), "a seed of -1"),
        ((*data, "--resume"), "no checkpoint to resume from"),
        ((*data, "--device", "tpu"), "no device 'tpu'"),
        ((*data, "--weights", "auto"), "belongs to `quantize`"),
    ]
    if not torch.cuda.is_available():
        cases.append(((*data, "--device", "cuda"), "finds no CUDA device here; use --device cpu"))
    for words, wanted in cases:
        code, shown, said = here(capsys, *model, *words)
        assert (code, shown) == (2, "")
        assert wanted in said
        assert said.count("\n") == 1
    assert not out.exists()


def training(settings: Settings, bits: int = 4) -> Training:
    graph = load(DIGITS / "digits.onnx")
    data = load_data(DIGITS / "digits_calibration.npz", graph)
    return Training(prepare(graph, data, Recipe(weights=everywhere(bits, "nearest"))), data, settings)


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
        *({"threads": "x"}, {"threads": 0}, {"threads": 10**9}),
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
