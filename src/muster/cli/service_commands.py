"""Commands around a scheduler that runs: `run`, its definitions, its policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.cli.command_options import CONTEXT, KUBECONFIG, OTHER_CODES, end

app = typer.Typer()

_BIND_ADDRESS = typer.Option(
    metavar="HOST:PORT", help="Serve /healthz, /readyz, /metrics and, to this machine, the page here; empty disables all."
)
_SHADOW = typer.Option("--shadow", help="Write nothing: report what differs from what another scheduler does.")
_AS_SCHEDULER = typer.Option(metavar="NAME", help="That scheduler, such as volcano; else the policy's own names.")
_SHADOW_REPORT = typer.Option(metavar="FILE", help="Add each report to this file, too, as a line of JSON.")


@app.command(
    epilog="Exit codes: 0 stopped by a signal, 2 the input is invalid, 3 the lease was lost, "
    "4 Plan and History are not installed, 70 an internal error."
)
def run(
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
    context: Annotated[str, CONTEXT] = "",
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="The policy file; by default the default policy.")] = None,
    bind_address: Annotated[str, _BIND_ADDRESS] = "127.0.0.1:10259",
    leader_election: Annotated[
        bool,
        typer.Option("--leader-election/--no-leader-election", help="Hold a Lease, so that one of several replicas is active."),
    ] = True,
    lease_namespace: Annotated[str, typer.Option(help="Namespace of the Lease; else the pod's, or kube-system.")] = "",
    lease_name: Annotated[str, typer.Option(help="Name of the Lease.")] = "muster",
    namespace: Annotated[str, typer.Option(help="Namespace of Plans and Histories; else the pod's, or kube-system.")] = "",
    lease_duration: Annotated[
        float, typer.Option(help="Seconds without renewal after which another replica may take the Lease.")
    ] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds after which a leader that cannot renew the Lease stops.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between two renewals.")] = 2.0,
    decision_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every event and decision to this file, for `muster replay`.")
    ] = None,
    log_size: Annotated[int, typer.Option(help="Rotate the decision log at this size, in MiB.", min=1)] = 256,
    log_files: Annotated[int, typer.Option(help="Files of the decision log to keep.", min=1)] = 5,
    log_format: Annotated[str, typer.Option(metavar="json|text", help="Format of log lines.")] = "json",
    queue_metrics: Annotated[
        bool, typer.Option("--queue-metrics", help="Serve metrics with names of queues to other machines, too.")
    ] = False,
    api_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve the API and the page to other machines here, for tokens of the cluster.")
    ] = "",
    api_certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of --api-address, in PEM.")] = None,
    api_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    shadow: Annotated[bool, _SHADOW] = False,
    as_scheduler: Annotated[list[str] | None, _AS_SCHEDULER] = None,
    shadow_period: Annotated[str, typer.Option(metavar="DURATION", help="How often it is reported.")] = "1h",
    shadow_report: Annotated[Path | None, _SHADOW_REPORT] = None,
) -> None:
    """Schedule a real cluster until SIGTERM or SIGINT; or, with --shadow, only look on."""
    from muster.cli.run import ShadowOptions, run_scheduler, service_settings

    def work() -> int:
        settings = service_settings(
            policy=policy,
            bind_address=bind_address,
            lease=(lease_namespace, lease_name) if leader_election else None,
            namespace=namespace,
            lease_times=(lease_duration, renew_deadline, retry_period),
            decision_log=decision_log,
            log_size=log_size,
            log_files=log_files,
            queue_metrics=queue_metrics,
            api=(api_address, api_certificate, api_key),
            shadow=ShadowOptions(shadow, tuple(as_scheduler or ()), shadow_period, shadow_report),
        )
        return run_scheduler(settings, kubeconfig=kubeconfig, context=context, log_format=log_format)

    end("run", work=work)


@app.command(short_help="Print or install the CustomResourceDefinitions.", epilog=OTHER_CODES)
def crds(
    install: Annotated[bool, typer.Option("--install", help="Create those that are missing in the cluster.")] = False,
    kubeconfig: Annotated[Path | None, KUBECONFIG] = None,
    context: Annotated[str, CONTEXT] = "",
) -> None:
    """Print the CustomResourceDefinitions that Muster reads, or install the missing ones."""
    from muster.cli.crds import install_missing, show

    end("crds", work=lambda: install_missing(kubeconfig, context) if install else show())


@app.command(short_help="Validate policy files and summarise them.", epilog=OTHER_CODES)
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Policy files; without any, the default policy is shown.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Validate policy files and summarise each: its actions, its plugins and their options."""
    from muster.cli.check import check as check_files

    end("check", json=json, work=lambda: check_files(list(files or ()), json=json))


@app.command(short_help="Convert a Volcano scheduler configuration to a policy.", epilog=OTHER_CODES)
def convert(
    file: Annotated[Path, typer.Argument(help="volcano-scheduler.conf, or a ConfigMap, a List or Helm values with it.")],
    strict: Annotated[bool, typer.Option("--strict", help="Fail with code 1 where a decision changes.")] = False,
) -> None:
    """Convert a Volcano scheduler configuration to a policy file. Differences are reported on standard error."""
    from muster.cli.convert import convert_file

    end("convert", work=lambda: convert_file(file, strict=strict))
