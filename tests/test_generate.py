"""Whole models: the C code equals the reference, reads well, compiles clean, gives the same bits under any flags."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cffi
import numpy as np
import pytest
from kernel_objects import COMPILER, CORES, PORTABLE, kernel_objects, kernel_sources
from kernel_objects import FLAGS as OBJECT_FLAGS
from models import ModelMaker, float_edges_model, random_model, samples, tiny_model

from rlx_edge.api import with_rule
from rlx_edge.cgen.bundle import generate, kernels_id, open_bundle
from rlx_edge.cgen.compile_host import compile_shared
from rlx_edge.cgen.host import HostModel
from rlx_edge.cgen.planner import CALL_STACK_BYTES
from rlx_edge.cgen.target import TARGETS, get_target
from rlx_edge.cgen.variants.table import ALL_KERNELS
from rlx_edge.data import load_data
from rlx_edge.errors import DataError, EdgeError, UnsupportedError
from rlx_edge.formats.load import load
from rlx_edge.ir import Graph, Requant
from rlx_edge.ir.ops import QMatMul
from rlx_edge.preprocess import Preprocess
from rlx_edge.quant.calibrate import calibrate
from rlx_edge.quant.quantize import quantize
from rlx_edge.reference import run, run_all
from rlx_edge.reference.fixedpoint import input_rounding, quantize_f32
from rlx_edge.resources import digits_dir

GOLDEN = Path(__file__).parent / "golden" / "tiny"
RUNTIME_STACK = 64
"""For what the compiler itself calls, such as a 64-bit division."""
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2", "-c")
FLAGS = {
    "O0": ("-std=c11", "-O0"),
    "Os": ("-std=c11", "-Os"),
    "Ofast": ("-std=c11", "-Ofast"),
    "flto": ("-std=c11", "-O2", "-flto"),
    "gnu11": ("-std=gnu11", "-O3", "-march=native"),
}


def assert_host_equals_reference(graph: Graph, folder: Path, count: int = 3) -> None:
    (model,) = generate({"model": graph}, folder)
    given = samples(graph, count)
    tapped = HostModel(model).run_tapped(given)
    for i in range(count):
        inputs = {name: values[i] for name, values in given.items()}
        expected = run_all(model.plan.graph, inputs) | run(graph, inputs)  # The lowered graph's, the source's outputs.
        for name, values in expected.items():
            np.testing.assert_array_equal(tapped[name][i], values, err_msg=f"{graph.name}: {name}")


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int, tmp_path: Path) -> None:
    """Every tensor of every step, so that a plan that overwrites a live tensor is seen."""
    assert_host_equals_reference(random_model(seed), tmp_path / "bundle")


@pytest.mark.parametrize("seed", range(4))
def test_random_models_under_onnx(seed: int, tmp_path: Path) -> None:
    assert_host_equals_reference(with_rule(random_model(seed), Requant.ONNX), tmp_path / "bundle")


def test_float_inputs_and_outputs(tmp_path: Path) -> None:
    assert_host_equals_reference(float_edges_model(), tmp_path / "bundle", count=20)


def test_golden(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The generated C of a small model, as it is read. A changed kernel only changes the two lines that name it."""
    (model,) = generate({"tiny": tiny_model()}, tmp_path / "bundle", TARGETS["cortex-m4"])
    made = {f.name: _without_hash(f.read_text(), model.hash) for f in (model.bundle / "tiny").glob("*.[ch]")}
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (GOLDEN / name).write_text(text)
    held = {file.name: file.read_text() for file in GOLDEN.iterdir()}
    assert made == held, "the generated C changed: look at the difference, then run pytest --update-golden"


def _without_hash(text: str, digest: str) -> str:
    as_bytes = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(digest))
    return text.replace(digest, "HASH").replace(as_bytes, "HASH").replace(kernels_id(), "KERNELS")


def test_generated_text_is_stable(tmp_path: Path) -> None:
    first = generate({"tiny": tiny_model()}, tmp_path / "a")[0]
    second = generate({"tiny": tiny_model()}, tmp_path / "b")[0]
    assert first.hash == second.hash
    for file in sorted((tmp_path / "a").rglob("*")):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes(), file.name


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    bundle = generate({"tiny": tiny_model(), "edges": float_edges_model()}, tmp_path / "bundle")[0].bundle
    extra = ("-mcpu=cortex-m0", "-mthumb", "-ffreestanding") if compiler.startswith("arm") else ()
    for source in sorted(bundle.rglob("*.c")):
        subprocess.run([compiler, *STRICT, *extra, f"-I{bundle / 'rlx'}", str(source), "-o", "/dev/null"], check=True)


def test_header_compiles_as_cpp(tmp_path: Path) -> None:
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0].bundle
    main = tmp_path / "main.cpp"
    main.write_text('#include "tiny/tiny.h"\nstatic tiny_arena_t arena;\nint main() { tiny_run(&arena); return 0; }\n')
    flags = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-c", f"-I{bundle}")
    subprocess.run(["gcc", "-x", "c++", *flags, str(main), "-fsyntax-only"], check=True)


def test_two_models_link_into_one_image(tmp_path: Path) -> None:
    """Both run in one program over one shared union of arenas, and give what each gives alone."""
    graphs = {"tiny": tiny_model(), "other": tiny_model(seed=2)}
    models = generate(graphs, tmp_path / "bundle")
    bundle = models[0].bundle
    given = samples(graphs["tiny"], 1)
    values = ", ".join(map(str, given["x"].reshape(-1)))
    main = tmp_path / "main.c"
    main.write_text(f"""
        #include <stdio.h>
        #include <string.h>
        #include "tiny/tiny.h"
        #include "other/other.h"
        static union {{ tiny_arena_t tiny; other_arena_t other; }} arena;
        static const int8_t x[] = {{ {values} }};
        int main(void) {{
            memcpy(tiny_input(&arena.tiny), x, sizeof x);
            tiny_run(&arena.tiny);
            for (unsigned i = 0; i < TINY_OUTPUT_ELEMENTS; i++) printf("%d ", tiny_output(&arena.tiny)[i]);
            memcpy(other_input(&arena.other), x, sizeof x);
            other_run(&arena.other);
            for (unsigned i = 0; i < OTHER_OUTPUT_ELEMENTS; i++) printf("%d ", other_output(&arena.other)[i]);
            return !(tiny_weights_ok() && other_weights_ok());
        }}""")
    sources = [*(bundle / "rlx").glob("*.c"), *(bundle / "tiny").glob("*.c"), *(bundle / "other").glob("*.c")]
    command = ["gcc", "-std=c11", "-O2", f"-I{bundle}", f"-I{bundle / 'rlx'}", str(main), *map(str, sources)]
    subprocess.run([*command, "-o", str(tmp_path / "main")], check=True)
    printed = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout
    alone = [HostModel(model).run(given)["probabilities"].reshape(-1) for model in models]
    assert list(map(int, printed.split())) == [int(v) for part in alone for v in part]


@pytest.mark.parametrize("name", FLAGS)
def test_same_bits_under_any_flags(name: str, tmp_path: Path) -> None:
    """In a process of its own: -Ofast makes a library that changes how the whole process treats small floats."""
    script = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from models import float_edges_model, random_model, samples
from rlx_edge.api import with_rule
from rlx_edge.cgen.bundle import generate
from rlx_edge.cgen.host import HostModel
from rlx_edge.ir import Requant
graphs = [random_model(0), random_model(5), float_edges_model()]
for seed, graph in enumerate([*graphs, *(with_rule(graph, Requant.ONNX) for graph in graphs)]):
    model, = generate({"model": graph}, Path(sys.argv[2]) / str(seed))
    outputs = HostModel(model, (*sys.argv[3:], "-fPIC", "-shared")).run(samples(graph, 50))
    print(*(np.ascontiguousarray(o).tobytes().hex() for o in outputs.values()))
"""
    folder = str(Path(__file__).parent)

    def outputs(flags: tuple[str, ...], out: str) -> str:
        command = [sys.executable, "-c", script, folder, str(tmp_path / out), *flags]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert outputs(FLAGS[name], "a") == outputs(("-std=c11", "-O2"), "b")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Names that would end a comment, a string or a line do not reach the compiler as code."""
    graph = tiny_model()
    evil = ["*/ #error a", '"; #error b', "a\n#error c", "??/\n", "\\", "\u202e\0", "/*", "a" * 500]
    computed = [node.id for node in graph.nodes if node.inputs]
    names = dict(zip(computed, evil, strict=False))
    nodes = tuple(
        replace(node, name=f"{names.get(node.id, node.name)}", sources=(names.get(node.id, ""),))
        for node in graph.nodes
    )
    hostile = replace(graph, name="*/ #error d", nodes=nodes, metadata={"source": "*/\n#error e"})
    (model,) = generate({"model": hostile}, tmp_path / "bundle")
    for compiler in ("gcc", "clang"):
        for source in (model.bundle / "model").glob("*.c"):
            include = f"-I{model.bundle / 'rlx'}"
            subprocess.run([compiler, *STRICT, include, str(source), "-o", "/dev/null"], check=True)
    HostModel(model).run(samples(hostile, 1))


@pytest.mark.parametrize("name", ["", "int", "Tiny", "a-b", "1a", "_a", "a" * 33, "../x", "a b", "class", "rlx_soc"])
def test_bad_model_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="cannot name a model in C"):
        generate({name: tiny_model()}, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_mixed_bundle_does_not_compile(tmp_path: Path) -> None:
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0].bundle
    (bundle / "rlx" / "rlx_bundle.h").write_text("#define RLX_BUNDLE_KERNELS 0x1u\n")
    assert "generate the bundle again" in _compile_error(bundle, "gcc")


def test_the_wrong_core_does_not_compile(tmp_path: Path) -> None:
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle", TARGETS["cortex-m4"])[0].bundle
    error = _compile_error(bundle, "arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb")
    assert "tiny was generated for cortex-m4" in error
    assert _compile_error(bundle, "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb") == ""


def _compile_error(bundle: Path, compiler: str, *flags: str) -> str:
    command = [
        compiler,
        *flags,
        "-std=c11",
        "-c",
        f"-I{bundle / 'rlx'}",
        str(bundle / "tiny" / "tiny.c"),
        "-o",
        "/dev/null",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode != 0) == bool(result.stderr)
    return result.stderr


def test_weights_go_to_a_section_of_choice(tmp_path: Path) -> None:
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0].bundle
    made = tmp_path / "weights.o"
    define = '-DTINY_WEIGHTS_SECTION=".qspi"'
    source = str(bundle / "tiny" / "tiny_weights.c")
    subprocess.run(["gcc", "-c", define, source, "-o", str(made)], check=True)
    assert ".qspi" in subprocess.run(["objdump", "-h", str(made)], capture_output=True, text=True, check=True).stdout


def test_kernels_need_no_library(tmp_path: Path) -> None:
    """Beside what the compiler itself calls (memcpy, memset), nothing is left undefined."""
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0].bundle
    objects = []
    for source in [*(bundle / "rlx").glob("*.c"), *(bundle / "tiny").glob("*.c")]:
        objects.append(str(tmp_path / f"{source.stem}.o"))
        flags = ("-std=c11", "-O2", "-ffreestanding", "-fno-stack-protector", f"-I{bundle / 'rlx'}")
        subprocess.run(["gcc", *flags, "-c", str(source), "-o", objects[-1]], check=True)
    subprocess.run(["ld", "-r", *objects, "-o", str(tmp_path / "all.o")], check=True)
    nm = subprocess.run(["nm", "-u", str(tmp_path / "all.o")], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in nm.splitlines()} <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}


LEVELS = ("-O0", "-Os", "-O2", "-O3")
PLACES = [(level, isa.value, core) for level in LEVELS for core in CORES.values() for isa in get_target(core).isas]


def _is_default(level: str, isa: str, core: str) -> bool:
    """On the smallest core that has the instructions, and where the compiler itself makes vectors."""
    smallest = {PORTABLE: CORES["v6m"], **CORES}[isa]
    return level != "-O2" and (core == smallest or (level, isa, core) == ("-O3", PORTABLE, CORES["mve"]))


@pytest.mark.parametrize(
    ("level", "isa", "core"), [p if _is_default(*p) else pytest.param(*p, marks=pytest.mark.long) for p in PLACES]
)
def test_stack_bounds_of_kernels_hold(
    level: str, isa: str, core: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All frames of a kernel's file together, as the compiler gives them, with room for its run-time functions."""
    bounds = {Path(kernel.source).stem: kernel.stack_bytes - RUNTIME_STACK for kernel in ALL_KERNELS}
    found = sorted(kernel_objects(tmp_path_factory, isa, core, level).glob("*.su"))
    assert len(found) == len(kernel_sources(isa))
    for file in found:
        frames = [int(line.split("\t")[1]) for line in file.read_text().splitlines()]
        assert sum(frames) <= bounds.get(file.stem, 512), file.stem


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("core", CORES.values())
def test_the_stack_bound_of_calls_holds(core: str, level: str, tmp_path: Path) -> None:
    """All frames of a model's file that lie below each other."""
    bundle = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0].bundle
    command = [COMPILER, *OBJECT_FLAGS, level, f"-mcpu={core}", f"-I{bundle / 'rlx'}", "-c", bundle / "tiny" / "tiny.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    frames = [line.split("\t") for line in (tmp_path / "tiny.su").read_text().splitlines()]
    assert sum(int(size) for where, size, _ in frames if _is_called(where)) <= CALL_STACK_BYTES


def _is_called(where: str) -> bool:
    """Whether a function of the model is one that calls kernels: all steps but the first are its siblings."""
    name = where.rsplit(":", 1)[-1]
    return name in ("tiny_run", "step_bytes", "step_00", "at")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A project's own files stay, in the bundle's folder and even within the folders that we write."""
    generate({"tiny": tiny_model(), "other": tiny_model(2)}, tmp_path)
    for mine in ("main.c", "src/app.c", "rlx/board.c", "other/notes.txt"):
        (tmp_path / mine).parent.mkdir(exist_ok=True)
        (tmp_path / mine).write_text("mine")
    generate({"tiny": tiny_model(3)}, tmp_path)
    kept = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file() and f.read_bytes() == b"mine"}
    assert kept == {"main.c", "src/app.c", "rlx/board.c", "other/notes.txt"}
    assert not (tmp_path / "other" / "other.c").exists(), "a model that is no longer in the bundle"
    assert [model.name for model in open_bundle(tmp_path)] == ["tiny"]


@pytest.mark.parametrize("taken", ["rlx/rlx.h", "tiny/tiny.c", "rlx"])
def test_a_file_of_others_in_the_way_is_refused(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine")
    with pytest.raises(EdgeError, match="was not made by rlx-edge"):
        generate({"tiny": tiny_model()}, tmp_path)
    assert [f.read_text() for f in tmp_path.rglob("*") if f.is_file()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EdgeError, match=r"file/bundle: the bundle cannot be written: Not a directory"):
        generate({"tiny": tiny_model()}, tmp_path / "file" / "bundle")


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    generate({"tiny": tiny_model()}, tmp_path)
    source = tmp_path / "tiny" / "tiny.c"
    source.write_text(source.read_text().replace(".high = 127", ".high = 126", 1))
    with pytest.raises(EdgeError, match=r"changed since it was generated: tiny/tiny\.c"):
        open_bundle(tmp_path)
    source.unlink()
    with pytest.raises(EdgeError, match="changed since"):
        open_bundle(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "x"}', '{"schema": "rlx-edge bundle 1", "files": {"../a": ""}}', "[" * 9999]
)
def test_a_damaged_list_of_files_is_refused(text: str, tmp_path: Path) -> None:
    generate({"tiny": tiny_model()}, tmp_path)
    (tmp_path / "bundle.json").write_text(text)
    for attempt in (lambda: open_bundle(tmp_path), lambda: generate({"tiny": tiny_model()}, tmp_path)):
        with pytest.raises(EdgeError, match=r"bundle\.json cannot be read"):
            attempt()


def test_the_folder_itself_stays(tmp_path: Path) -> None:
    """It may be somebody's working directory."""
    inode = tmp_path.stat().st_ino
    generate({"tiny": tiny_model()}, tmp_path)
    generate({"tiny": tiny_model()}, tmp_path)
    assert tmp_path.stat().st_ino == inode


def test_a_failure_leaves_the_old_bundle(tmp_path: Path) -> None:
    old = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0]
    graph = _with_rule(tiny_model(), Requant.RLX)
    with pytest.raises(UnsupportedError, match="cannot run on portable"):
        generate({"tiny": graph}, tmp_path / "bundle")
    assert open_bundle(tmp_path / "bundle")[0].hash == old.hash


def _with_rule(graph: Graph, rule: Requant) -> Graph:
    nodes = tuple(
        replace(node, op=replace(node.op, requant=rule)) if isinstance(node.op, QMatMul) else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def test_an_opened_bundle_is_the_generated_one(tmp_path: Path) -> None:
    made = generate({"tiny": tiny_model()}, tmp_path / "bundle")[0]
    (opened,) = open_bundle(tmp_path / "bundle")
    assert (opened.name, opened.hash, opened.plan.tensors) == (made.name, made.hash, made.plan.tensors)
    given = samples(made.plan.graph, 2)
    np.testing.assert_array_equal(*(HostModel(m).run(given)["probabilities"] for m in (made, opened)))


def test_host_refuses_wrong_inputs(tmp_path: Path) -> None:
    host = HostModel(generate({"tiny": tiny_model()}, tmp_path / "bundle")[0])
    with pytest.raises(DataError, match="no values for the input 'x'"):
        host.run({"y": np.zeros((1, 6, 6, 2), np.int8)})
    with pytest.raises(DataError, match=r"i8\[1, 6, 6, 2\]"):
        host.run({"x": np.zeros((1, 6, 5, 2), np.int8)})
    with pytest.raises(DataError, match="float32"):
        host.run({"x": np.zeros((1, 6, 6, 2), np.float32)})


@pytest.mark.parametrize("rule", [Requant.TFLM, Requant.ONNX])
def test_quantize_helper_rounds_as_the_data(rule: Requant, tmp_path: Path) -> None:
    """Ties, numbers beside them, and numbers beyond all codes, under each rule's rounding of float inputs."""
    maker = ModelMaker("reals", 0)
    x = maker.input((1, 1, 1, 1))
    quant = maker.builder[x].type.quant
    assert quant is not None
    graph = with_rule(maker.builder.build([maker.conv(x, 2)]), rule)
    (model,) = generate({"reals": graph}, tmp_path / "bundle")
    ties = ((np.arange(-300, 300) + 0.5) * np.float32(quant.scale)).astype(np.float32)
    values = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.float32([0, -0.0, 1e30, -1e30, 1e-40])])
    np.savez(tmp_path / "data.npz", x=values.reshape(-1, 1, 1, 1))
    expected = load_data(tmp_path / "data.npz", graph).inputs["x"].reshape(-1)
    ffi = cffi.FFI()
    ffi.cdef("int8_t reals_quantize(float value);")
    call = ffi.dlopen(str(compile_shared(model.sources, [model.bundle / "rlx"]))).reals_quantize
    assert [call(float(value)) for value in values] == expected.tolist()
    assert quantize_f32(values, quant, rounding=input_rounding(graph)).tolist() == expected.tolist()


@pytest.mark.parametrize("formula", ["scale=1/255", "scale=1/255,mean=0.485,0.456,0.406,std=0.229,0.224,0.225"])
def test_preprocessing_in_c_is_that_of_the_data(formula: str, tmp_path: Path) -> None:
    """The helper gives, for every byte, the integer that a data file's pixel becomes."""
    maker = ModelMaker("pixels", 0)
    graph = maker.builder.build([maker.conv(maker.input((1, 4, 4, 3)), 2)]).with_metadata(preprocess=formula)
    (model,) = generate({"pixels": graph}, tmp_path / "bundle")
    every = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(16, 4, 4, 3)
    np.savez(tmp_path / "data.npz", x=every)
    expected = load_data(tmp_path / "data.npz", graph).inputs["x"].reshape(256, 3)
    library = compile_shared(model.sources, [model.bundle / "rlx"])
    ffi = cffi.FFI()
    per_channel = "mean" in formula
    ffi.cdef(f"int8_t pixels_preprocess(uint8_t pixel{', uint32_t channel' if per_channel else ''});")
    call = ffi.dlopen(str(library)).pixels_preprocess
    got = [[call(pixel, c) if per_channel else call(pixel) for c in range(3)] for pixel in range(256)]
    assert got == expected.tolist()


@pytest.mark.parametrize(
    "formula",
    [
        "scale=1/255",
        "scale=0.01,mean=-3.25,std=0.7",
        "scale=-1,mean=0.485,0.456,0.406,std=0.229,-0.224,1e-30",
        "scale=1e-30,mean=1e-31",
        "scale=1e300,mean=1,2,3",
    ],
)
def test_preprocessing_of_floats_in_c_is_that_of_the_data(formula: str, tmp_path: Path) -> None:
    """For random bits (of all sizes, with infinity), and for the floats around each place where the code changes."""
    maker = ModelMaker("reals", 0)
    graph = maker.builder.build([maker.conv(maker.input((1, 4, 4, 3)), 2)])
    quant = graph.inputs[0].type.quant
    assert quant is not None
    (model,) = generate({"reals": graph.with_metadata(preprocess=formula)}, tmp_path / "bundle")
    steps = Preprocess.parse(formula)
    ends = (quant.scale * (np.arange(-129, 129) + 0.5 - quant.zero_point) * steps.std[0] + steps.mean[0]) / steps.scale
    bits = np.random.default_rng(1).integers(0, 1 << 32, 6000, dtype=np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        near = np.nextafter(ends.astype(np.float32)[:, None], np.array([-np.inf, np.inf], np.float32)).reshape(-1)
        values = np.concatenate([bits, near, ends.astype(np.float32), np.float32([0, -0.0, 1e-45, np.inf, -np.inf])])
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        expected = quantize_f32(steps.apply(np.repeat(values, 3).reshape(-1, 3)), quant)
    library = compile_shared(model.sources, [model.bundle / "rlx"])
    ffi = cffi.FFI()
    channels = max(len(steps.mean), len(steps.std))
    ffi.cdef(f"int8_t reals_preprocess_float(float value{', uint32_t channel' if channels > 1 else ''});")
    call = ffi.dlopen(str(library)).reals_preprocess_float
    for channel in range(channels):
        more = (channel,) if channels > 1 else ()
        assert [call(value, *more) for value in values.tolist()] == expected[:, channel].tolist()
        assert call(float("nan"), *more) == quant.zero_point


def test_the_header_tells_the_layout_of_the_source(tmp_path: Path) -> None:
    """ONNX models keep their channels first; a model that says nothing gets no macro."""
    graph = load(digits_dir() / "digits.onnx")
    data = load_data(digits_dir() / "digits_calibration.npz", graph, samples="0:16")
    int8 = quantize(graph, calibrate(graph, data))
    (model,) = generate({"digits": int8}, tmp_path / "bundle")
    header = (model.bundle / "digits" / "digits.h").read_text()
    assert "#define DIGITS_INPUT_SHAPE 1, 1, 8, 8" in header
    assert '#define DIGITS_INPUT_LAYOUT "NCHW"' in header


def test_every_input_has_its_own_helper(tmp_path: Path) -> None:
    maker = ModelMaker("two", 0)
    a, b = maker.input((1, 4), "a"), maker.input((1, 4), "b")
    graph = maker.builder.build([maker.add(a, b)])
    (model,) = generate({"two": graph}, tmp_path / "bundle")
    ffi = cffi.FFI()
    ffi.cdef("int8_t two_quantize_0(float); int8_t two_quantize_1(float); float two_dequantize(int8_t);")
    library = ffi.dlopen(str(compile_shared(model.sources, [model.bundle / "rlx"])))
    for node, quantize_one in zip(graph.inputs, (library.two_quantize_0, library.two_quantize_1), strict=True):
        assert node.type.quant is not None
        expected = quantize_f32(np.array([0.7], np.float32), node.type.quant)[0]
        assert quantize_one(0.7) == expected


def test_thousands_of_inferences_in_one_call(tmp_path: Path) -> None:
    host = HostModel(generate({"tiny": tiny_model()}, tmp_path / "bundle")[0])
    given = samples(tiny_model(), 5000)
    outputs = host.run(given)["probabilities"]
    assert outputs.shape == (5000, 1, 3)
    np.testing.assert_array_equal(outputs[4999], host.run({"x": given["x"][4999:]})["probabilities"][0])
