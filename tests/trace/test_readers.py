"""Histories are read from every format. The samples are small and made after the published descriptions; the real traces are read
where they are at hand."""

from __future__ import annotations

import io
import json
from itertools import islice
from pathlib import Path

import pytest

from muster.config import default_policy
from muster.decision_log import DecisionLogWriter
from muster.model.resource_amounts import CPU, GPU, MEMORY
from muster.scenario import run
from muster.scenario.loader import parse
from muster.trace.csv_writer import write_jobs, write_nodes
from muster.trace.job_simulation import JobSimulation
from muster.trace.job_trace import GPU_MODEL_LABEL, JobTrace, TraceJob, filling, gpus_of, shuffled
from muster.trace.outcome import figures
from muster.trace.table_reader import read_jobs, read_trace
from muster.yaml_positions import InputError

REAL = Path(__file__).parents[3] / "shared" / "traces"

OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,12000,16384,1,1000,,LS,Running,100,700,150
b,6000,12288,1,460,V100M16|V100M32,LS,Running,90,190,90
c,8000,1024,2,1000,,BE,Failed,200,200,
d,4000,1024,0,0,,BE,Pending,200,260,
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,131072,4,V100M16\n"


def read(tmp_path: Path, text: str, name: str = "jobs.csv", columns: str = "") -> JobTrace:
    path = tmp_path / name
    path.write_text(text)
    described = None
    if columns:
        described = tmp_path / "columns.yaml"
        described.write_text(columns)
    return read_jobs(path, columns=described)


def fault(tmp_path: Path, text: str, name: str = "jobs.csv", columns: str = "") -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, name, columns)
    return str(caught.value.faults[0]).replace(f"{tmp_path}/", "")


def test_openb_has_parts_of_gpus_and_models(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB)
    assert [(job.name, job.arrival_s, job.run_s, gpus_of(job.signature)) for job in trace.jobs] == [
        ("b", 0, 100, 0.46),
        ("a", 10, 550, 1),
        ("d", 110, 60, 0),
    ]
    assert trace.left_out == 1, "c never ran"
    assert trace.jobs[1].signature.request[MEMORY] == 16 * 2**30
    (term,) = trace.jobs[0].signature.node_affinity.required or ()
    assert (term.expressions[0].key, term.expressions[0].values) == (GPU_MODEL_LABEL, ("V100M16", "V100M32"))


def test_a_cluster_with_shared_gpus_lists_its_devices_and_whole_gpus_are_devices_too(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "jobs.csv").write_text(OPENB)
    trace = read_trace(tmp_path / "jobs.csv", nodes=str(tmp_path / "nodes.csv"))
    assert trace.gpus == 6
    assert [len(node.devices) for node in trace.nodes] == [2, 4]
    assert trace.nodes[1].labels[GPU_MODEL_LABEL] == "V100M16"
    assert [job.signature.request[GPU] for job in trace.jobs] == [0, 0, 0]
    assert [sum(each.cores for each in job.signature.devices) for job in trace.jobs] == [46, 100, 0]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "philly.csv",
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,60,16,960,vc1\n2017-10-09 06:00:00,30,1,30,vc2\n",
            [(0, 30, 1, 1, "vc2"), (3600, 60, 2, 8, "vc1")],
        ),
        (
            "cluster_job_log.json",
            """[{"status": "Pass", "vc": "v", "jobid": "j", "submitted_time": "2017-10-09 07:00:00", "user": "u", "attempts": [
            {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00", "detail": [
            {"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]}]},
            {"status": "Killed", "vc": "v", "jobid": "k", "submitted_time": "2017-10-09 07:00:00", "attempts": []}]""",
            [(0, 60, 2, 2, "v")],
        ),
        (
            "helios.csv",
            "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
            "1,u,vcA,16,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,60\n",
            [(0, 60, 2, 8, "vcA")],
        ),
        (
            "acme.csv",
            "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
            "duration,queue,gpu_time\n"
            "1,u,4,32,480,960,100,Pretrain,COMPLETED,2023-03-01 00:00:10+08:00,2023-03-01 00:00:10+08:00,"
            "2023-03-01 01:00:10+08:00,3600,0,115200\n",
            [(0, 3600, 4, 8, "Pretrain")],
        ),
        (
            # Seren says nothing of memory; one was cancelled before it started, one was submitted in another time zone.
            "trace_seren.csv",
            "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
            "1,u,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0\n"
            "2,u,1,0,0,Other,CANCELLED,2023-03-01 00:19:00+08:00,,2023-03-01 00:20:00+08:00,0,60,0\n"
            "3,u,2,16,256,SFT,COMPLETED,2023-02-28 16:19:22+00:00,2023-03-01 00:20:22+08:00,2023-03-01 00:21:22+08:00,60,60,960\n",
            [(0, 117, 1, 8, "Other"), (60, 60, 2, 8, "SFT")],
        ),
        (
            # Lines of state 2 and 3 are parts of job 3; job 2 was cancelled before it started, of job 4 only the request is known.
            "parts.swf",
            "1 10 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1\n2 20 9 -1 -1 -1 -1 4 200 -1 5 3 1 -1 2 -1 -1 -1\n"
            "3 30 5 90 2 -1 -1 2 100 -1 1 3 1 -1 1 -1 -1 -1\n3 30 5 40 2 -1 -1 2 100 -1 2 3 1 -1 1 -1 -1 -1\n"
            "3 75 5 50 2 -1 -1 2 100 -1 3 3 1 -1 1 -1 -1 -1\n4 40 5 60 -1 -1 -1 16 -1 -1 5 3 1 -1 -1 -1 -1 -1\n",
            [(0, 100, 8, 0, "2"), (20, 90, 2, 0, "1"), (30, 60, 16, 0, "")],
        ),
        (
            "site.swf",
            "; MaxNodes: 4\n  1 10 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1\n  2 20 5 -1 8 -1 -1 8 200 -1 0 3 1 -1 2 -1 -1 -1\n",
            [(0, 100, 8, 0, "2")],
        ),
    ],
)
def test_public_formats_are_told_by_their_columns(
    tmp_path: Path, name: str, text: str, expected: list[tuple[float, float, int, int, str]]
) -> None:
    trace = read(tmp_path, text, name)
    found = [(job.arrival_s, job.run_s, job.members, gpus_of(job.signature), job.queue) for job in trace.jobs]
    assert found == expected


PHILLY = """\
[{"vc": "v", "jobid": "two attempts", "submitted_time": "2017-10-07 01:11:39", "attempts": [
  {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
  {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-07 01:14:30", "detail": [
    {"ip": "m2", "gpus": ["gpu0", "gpu1", "gpu2"]}, {"ip": "m3", "gpus": ["gpu0"]}]}]},
 {"vc": "v", "jobid": "none", "submitted_time": "2017-10-07 01:11:39", "attempts": []},
 {"vc": "v", "jobid": "still runs", "submitted_time": "2017-10-07 01:11:39", "attempts": [
  {"start_time": "2017-10-07 01:13:30", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
 {"vc": "v", "jobid": "nowhere", "submitted_time": "2017-10-07 01:12:39", "attempts": [
  {"start_time": null, "end_time": null, "detail": []},
  {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-07 01:14:00", "detail": []}]}]
"""


@pytest.mark.parametrize("name", ["cluster_job_log", "cluster_job_log.json"])
def test_a_job_of_philly_runs_for_all_its_attempts_that_began_and_ended(tmp_path: Path, name: str) -> None:
    trace = read(tmp_path, PHILLY, name)
    # 74 s and 60 s, on the servers of the last; a member of the one with the most GPUs cannot be told from the other.
    assert [(job.name, job.arrival_s, job.run_s, job.members, job.gpus) for job in trace.jobs] == [
        ("two attempts", 0, 134, 2, 4),
        ("nowhere", 60, 30, 1, 0),
    ]
    assert trace.left_out == 2


def test_faults_of_philly_have_the_line_where_the_job_begins(tmp_path: Path) -> None:
    name = "cluster_job_log"
    assert fault(tmp_path, PHILLY.replace('"2017-10-07 01:14:00"', '"noon"'), name).startswith(
        "cluster_job_log:8: column end_time: 'noon' is"
    )
    wrong = fault(tmp_path, PHILLY.replace('"none"', "5"), name)
    assert wrong.startswith("cluster_job_log:5: is no job as in Philly's cluster_job_log: Expected `str`, got `int` - at `$.jobid`")


def test_declared_run_times_are_read_written_and_told_to_the_scheduler(tmp_path: Path) -> None:
    site = read(tmp_path, "1 10 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1\n", "site.swf")
    assert [job.declared_s for job in site.jobs] == [200]
    (tmp_path / "jobs.csv").write_text("name,arrival_s,run_s,gpus,declared_s\na,0,60,1,90\nb,0,60,1,\n")
    trace = read_trace(tmp_path / "jobs.csv", nodes="1x8")
    assert [job.declared_s for job in trace.jobs] == [90, None]
    written = io.StringIO()
    write_jobs(trace, written)
    assert read(tmp_path, written.getvalue(), "again.csv").jobs == trace.jobs
    with (tmp_path / "log.jsonl").open("wb") as log:
        JobSimulation(trace, default_policy(), log=DecisionLogWriter(log)).run()
    assert {job.name: job.declared_s for job in read_jobs(tmp_path / "log.jsonl").jobs} == {"trace.a-0": 90, "trace.b-0": None}


def test_other_columns_are_described_by_a_small_file(tmp_path: Path) -> None:
    described = """\
columns: {arrival: submitted, run_s: secs, total_gpus: [gpus_used, gpus], total_cpus: cores, queue: team, priority: class}
gpusPerMember: 4
checkpointSeconds: 1800
priorities: {high: 100, low: 1}
queues: {a: 75, b: 25}
"""
    text = "submitted,secs,gpus,gpus_used,cores,team,class\n5,60,8,,16,a,high\n6,60,1,2,3,b,low\n"
    first, second = read(tmp_path, text, columns=described).jobs
    assert (first.members, first.gpus, first.signature.request[CPU]) == (2, 8, 8000)
    assert (first.priority, first.checkpoint_s, first.queue) == (100, 1800, "a")
    assert (second.members, second.gpus, second.priority) == (1, 2, 1)
    trace = read_trace(tmp_path / "jobs.csv", columns=tmp_path / "columns.yaml", nodes="4x8:V100,2x4")
    assert [(queue.key, queue.deserved[GPU]) for queue in trace.queues] == [("queue/a", 30), ("queue/b", 10)]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("a,b\n1,2\n", "", "jobs.csv:1: the columns are those of no known format"),
        (OPENB.replace("460", "many"), "", "jobs.csv:3: column gpu_milli: 'many' is no number from 0 on"),
        (OPENB.replace(",90,190,90", ",noon,190,90"), "", "jobs.csv:3: column creation_time: 'noon' is neither"),
        (OPENB.replace("b,6000", "b,6000,1"), "", "jobs.csv:3: 12 columns, the header has 11"),
        (OPENB.replace("a,12000", "a,-5"), "", "jobs.csv:2: column cpu_milli: '-5' is no number from 0 on"),
        ("arrival_s,run_s,gpus\n0,60,1.5\n", "", "jobs.csv:2: column gpus: 1.5 GPUs are neither a whole number nor a part of one"),
        ("arrival_s,run_s,members\n0,60,1.5\n", "", "jobs.csv:2: column members: '1.5' is no whole number"),
        ("arrival_s,run_s,members\n0,60,2\n0,60,0\n", "", "jobs.csv:3: column members: a job has one member or more"),
        ("arrival_s,run_s\n0,60\n-5,60\n", "", "jobs.csv:3: column arrival_s: '-5' is no number of seconds from 0 on"),
        ("arrival_s,run_s\ninf,60\n", "", "jobs.csv:2: column arrival_s: 'inf' is no number of seconds from 0 on"),
        ("arrival_s,run_s,priority\n0,60,1.5\n", "", "jobs.csv:2: column priority: '1.5' is no whole number"),
        ("arrival_s,run_s,priority\n0,60,inf\n", "", "jobs.csv:2: column priority: 'inf' is no whole number"),
        ("arrival_s,run_s,priority\n0,60,high\n", "", "jobs.csv:2: column priority: 'high' is no whole number"),
        ("arrival_s,run_s,memory\n0,60,lots\n", "", "jobs.csv:2: column memory: 'lots' is not a quantity"),
        ("arrival_s,run_s\n0,0\n", "", "jobs.csv:1: there is no job with a run time in it"),
        ("arrival_s,run_s,run_s\n0,60,70\n", "", "jobs.csv:1: there are two columns 'run_s'"),
        ("submitted,secs\n0,60\n", "columns: {arrival: submitted, run_s: seconds}\n", "jobs.csv:1: no column 'seconds' for run_s"),
        (
            "submitted,secs\n0,60\n",
            "columns: {arrival: submitted, run_s: [a, secs], queue: team}\n",
            "jobs.csv:1: no column 'team'",
        ),
        ("a\n1\n", "format: openbe\n", "columns.yaml:1: unknown format 'openbe'"),
        ("a\n1\n", "columns:\n  arival: a\n", "columns.yaml:2: unknown field of a job 'arival'. Did you mean 'arrival'?"),
        ("a\n1\n", "gpusPerMembers: 4\n", "columns.yaml:1: unknown key 'gpusPerMembers'. Did you mean 'gpusPerMember'?"),
        ("a\n1\n", "queues: {a: lots}\n", "columns.yaml:1: must be a number from 0 on, not the text 'lots'"),
    ],
)
def test_bad_input_is_named_with_file_and_line(tmp_path: Path, text: str, columns: str, expected: str) -> None:
    assert fault(tmp_path, text, columns=columns).startswith(expected)


@pytest.mark.parametrize(("nodes", "expected"), [("", "the history names no nodes"), ("64*8", "'64*8': write a file, or such")])
def test_a_history_needs_nodes(tmp_path: Path, nodes: str, expected: str) -> None:
    (tmp_path / "jobs.csv").write_text(OPENB)
    with pytest.raises(InputError, match=expected.replace("*", "[*]")):
        read_trace(tmp_path / "jobs.csv", nodes=nodes)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB)
    written = io.StringIO()
    write_jobs(trace, written)
    again = read(tmp_path, written.getvalue(), "again.csv")
    assert again.jobs == trace.jobs
    (tmp_path / "nodes.csv").write_text(NODES)
    nodes = io.StringIO()
    write_nodes(read_trace(tmp_path / "jobs.csv", nodes=str(tmp_path / "nodes.csv")), nodes)
    assert nodes.getvalue().splitlines()[2] == "n1,32000,137438953472,4,V100M16"


def test_priorities_below_zero_are_written_and_read_again(tmp_path: Path) -> None:
    trace = read(tmp_path, "arrival_s,run_s,priority\n0,60,-10\n1,60,-1\n2,60,\n3,60,7\n")
    assert [job.priority for job in trace.jobs] == [-10, -1, 0, 7]
    written = io.StringIO()
    write_jobs(trace, written)
    assert read(tmp_path, written.getvalue(), "again.csv").jobs == trace.jobs


def test_jobs_of_one_name_get_numbers_that_no_other_job_has(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("name,arrival_s,run_s\na,0,60\na,1,60\na-1,2,60\na,3,60\nb,4,60\n")
    trace = read_trace(tmp_path / "jobs.csv", nodes="1x8")
    assert [job.name for job in trace.jobs] == ["a", "a-2", "a-1", "a-3", "b"]
    ended = [(run.job.arrival_s, run.end_s) for run in JobSimulation(trace, default_policy()).run().runs]
    assert ended == [(0, 60), (1, 61), (2, 62), (3, 63), (4, 64)]


def test_queues_of_a_table_may_have_paths_for_names(tmp_path: Path) -> None:
    jobs = "a,0,1000,4,team/x\nb,500,1000,2,quota/other/x\nc,1000,100,2,quota/other/x\n"
    (tmp_path / "jobs.csv").write_text(f"name,arrival_s,run_s,gpus,queue\n{jobs}")
    done = JobSimulation(read_trace(tmp_path / "jobs.csv", nodes="1x8"), default_policy()).run()
    assert [run.end_s for run in done.runs] == [1000, 1500, 1100]
    # Each deserves 4 GPUs: one has all in the first half, 4 and 2 are in use in the second.
    assert [each.value for each in figures(done) if "Jain" in each.name] == [pytest.approx((0.5 + 0.9) / 2)]


def test_a_decision_log_is_a_history_of_its_cluster(tmp_path: Path) -> None:
    (scenario,) = parse(
        """\
name: two gangs
nodes: [{name: "n[1-2]", gpu: 8}]
gangs:
- {name: long, pods: 2, requests: {gpu: 8}, runDuration: 10m, priority: 5}
- {name: short, pods: 1, requests: {gpu: 4}, runDuration: 2m}
- {name: large, pods: 1, requests: {gpu: 16}, runDuration: 2m}
steps:
- run: {for: 20m, every: 10s}
""",
        file="<two gangs>",
    )
    with (tmp_path / "log.jsonl").open("wb") as log:
        run(scenario, log=DecisionLogWriter(log))
    trace = read_trace(tmp_path / "log.jsonl")
    assert trace.gpus == 16
    by_name = {job.name: job for job in trace.jobs}
    assert by_name.keys() == {"default.long", "default.short"}
    assert trace.left_out == 1, "large fits on no node"
    assert by_name["default.long"].members == 2
    assert by_name["default.long"].priority == 5
    assert by_name["default.long"].run_s == pytest.approx(600, abs=20)
    assert by_name["default.short"].run_s == pytest.approx(120, abs=20)
    # Its pods request devices in the way of the log, and run where its nodes have them.
    assert all(each.end_s is not None for each in JobSimulation(trace, default_policy()).run().runs)


def test_a_line_that_is_no_decision_is_an_error(tmp_path: Path) -> None:
    assert "line 1 is not a line of a decision log" in fault(tmp_path, "{}\n", "log.jsonl")


def test_seeds_shuffle_which_job_arrives_when() -> None:
    trace = JobTrace(tuple(TraceJob(f"j{n}", float(n), run_s=1.0 + n) for n in range(20)))
    assert shuffled(trace, seed=0) is trace
    other = shuffled(trace, seed=1)
    assert [job.arrival_s for job in other.jobs] == [job.arrival_s for job in trace.jobs]
    assert sorted(job.run_s for job in other.jobs) == sorted(job.run_s for job in trace.jobs)
    assert [job.run_s for job in other.jobs] != [job.run_s for job in trace.jobs]
    assert other == shuffled(trace, seed=1)


def test_filling_takes_each_job_once_before_any_again(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(OPENB)
    trace = read_trace(tmp_path / "jobs.csv", nodes="1x4")
    chosen = filling(trace, percent=100, seed=3)
    assert sum(job.gpus for job in chosen) >= 4
    assert sum(job.gpus for job in chosen[:-1]) < 4
    assert {job.name.split("-")[0] for job in chosen[:3]} == {"a", "b", "d"}


@pytest.mark.skipif(not REAL.is_dir(), reason="the public traces are not at hand")
@pytest.mark.parametrize(("name", "gpus"), [("openb_pod_list_default.csv", 1400), ("philly.csv", 2000)])
def test_the_public_traces_are_read(tmp_path: Path, name: str, gpus: int) -> None:
    with (REAL / name).open() as file:
        trace = read(tmp_path, "".join(islice(file, 2001)), name)
    assert len(trace.jobs) + trace.left_out == 2000
    assert sum(job.gpus for job in trace.jobs) > gpus


def pod_seen(
    name: str, *, started: str = "", gpus: int = 8, scheduler: str = "default-scheduler", **more: object
) -> dict[str, object]:
    limits = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": limits}],
            **({"nodeName": "n1"} if started else {}),
        },
        "status": {"phase": "Running" if started else "Pending", **({"startTime": started} if started else {}), **more},
    }


def snapshot(folder: Path, time: str, *objects: dict[str, object]) -> None:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": amounts}}
    folder.mkdir(exist_ok=True)
    (folder / f"{time}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *objects]}))


def test_snapshots_over_time_are_a_history(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    a = pod_seen("a", started="2026-01-01T00:05:00Z")
    snapshot(folder, "2026-01-01T00:10:00Z", a, pod_seen("b"))
    snapshot(folder, "2026-01-01T01:10:00Z", pod_seen("b", started="2026-01-01T01:06:00Z", scheduler="volcano"))
    snapshot(folder, "2026-01-01T02:06:00Z", pod_seen("b", started="2026-01-01T01:06:00Z", scheduler="volcano"))
    (folder / "notes.txt").write_text("of nobody's concern")
    trace = read_trace(folder)
    assert trace.gpus == 8
    # a was gone by 01:10; b still ran at the end.
    assert {job.name: (job.run_s, job.gpus) for job in trace.jobs} == {"ml.a": (3900, 8), "ml.b": (3600, 8)}
    assert all(run.end_s is not None for run in JobSimulation(trace, default_policy()).run().runs)


def test_a_folder_without_snapshots_says_how_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text("{}")
    with pytest.raises(InputError, match=r"name each after its time, such as 2026-01-01T12:00:00Z\.json"):
        read_trace(tmp_path)


def test_a_snapshot_that_is_no_list_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "2026-01-01T00:00:00Z.json").write_text("[]")
    with pytest.raises(InputError, match="is no list of objects"):
        read_trace(tmp_path)
