"""Sweeps on a real Ray cluster of several nodes, one of which is killed, and by submitit: make test-clusters."""

import os
import threading
import time

import pytest

from unseam import sweep
from unseam.sweep.store import Store
from unseam.trial import Trial

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SPEC = {
    "trial": {
        "world": "linear", "likelihood": "gaussian", "latent": 2, "steps": 300, "batch_size": 8,
        "encoder_widths": [], "decoder_widths": [],
    },
    "axes": {"beta": [0.01, 0.1], "seed": {"range": [0, 4]}},
    "score": {"points": 20, "measures": ["training", "geometry"]},
}  # fmt: skip


def rows_written(address):
    return sum(int(name.partition("-")[2].removesuffix(".parquet")) for name in Store(address).parts())


@pytest.fixture
def cluster(monkeypatch):
    """A head without cores for tasks, and two nodes with one each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, nodes
    ray.shutdown()
    made.shutdown()


def test_every_trial_finishes_once_though_a_node_is_killed(cluster, tmp_path):
    made, nodes = cluster
    failed = []

    def kill():
        deadline = time.monotonic() + 300
        while not [path for path in tmp_path.glob("work/*/optimizer.safetensors")]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        killed.append(Store(tmp_path).claims())
        made.remove_node(nodes[0], allow_graceful=False)
        made.add_node(num_cpus=1)

    killed = []
    killer = threading.Thread(target=kill)
    killer.start()
    done = sweep.run(
        SPEC,
        tmp_path,
        engine="ray",
        address=made.address,
        stack=2,
        gpus=0,
        device="cpu",
        checkpoint_seconds=0.5,
    )
    killer.join()
    assert not failed
    assert killed[0]
    assert len(done.table()) == rows_written(tmp_path) == 8
    assert not Store(tmp_path).claims()


def test_an_array_of_stacks_runs_on_the_local_executor_of_submitit(tmp_path):
    pytest.importorskip("submitit")
    done = sweep.run(
        SPEC,
        tmp_path,
        engine="slurm",
        cluster="local",
        stack=4,
        device="cpu",
        timeout_min=10,
        cpus_per_task=1,
    )
    assert len(done.table()) == rows_written(tmp_path) == 8
    assert list((tmp_path / "slurm").iterdir())


def test_search_asks_for_stacks_and_finds_what_is_good(tmp_path):
    pytest.importorskip("optuna")
    trial = Trial(**SPEC["trial"])
    space = {"beta": {"from": 1e-3, "to": 10, "scale": "log"}, "posterior": ["diagonal", "full"]}
    score = sweep.Score(measures=["training"])
    options = {"target": "kl", "asks": 3, "stack": 4, "score": score, "device": "cpu"}
    done, study = sweep.search(trial, space, tmp_path, **options)
    assert len(done.table()) == len(study.trials) == 12
    assert study.best_value == pytest.approx(done.table()["kl"].max())


def test_ray_overhead_is_printed(cluster, tmp_path, capsys):
    """Seconds of the same stacks on one node of the cluster and in this process."""
    times = {}
    for engine, options in (("local", {}), ("ray", {"address": cluster[0].address, "gpus": 0})):
        begun = time.monotonic()
        sweep.run(SPEC, tmp_path / engine, engine=engine, stack=8, device="cpu", **options)
        times[engine] = time.monotonic() - begun
    with capsys.disabled():
        print({name: round(value, 1) for name, value in times.items()}, os.cpu_count(), "cores")
