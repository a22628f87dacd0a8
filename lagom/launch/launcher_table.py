# SPDX-License-Identifier: Apache-2.0
"""Launchers and wrappers of commands: one row each. ``launchers.py`` reads commands by this table; nothing else does.

Only what is needed to find the program behind a launcher's own options, and what it says about nodes. Names with ``--``
are written with ``-`` between words; ``_`` there means the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Starts(Enum):
    """Where a launcher starts what it is given."""

    HERE = "here"  # a wrapper: one process, on this node or on the one that it names
    NODE = "node"  # ranks of this node; each other node has a launcher of its own
    HOSTS = "hosts"  # ranks of all nodes, on the hosts that it is told; without hosts on this node
    AWAY = "away"  # where a batch system, a cluster or its own word says


@dataclass(frozen=True, slots=True)
class Launcher:
    """``values``: options that take a value; what is in no field is a flag. ``passes``: its ranks get this environment;
    if not, only by ``passing`` (the whole of it) or ``variables`` (those named). ``clearing``: options by which it does
    not arrive; ``listing``: whose value lists all that arrives, unless ALL is in it. ``differing``: options whose
    values are others at each start of the same job."""

    names: tuple[str, ...]  # of the program, or of the module after ``python -m``
    starts: Starts = Starts.HERE
    verbs: tuple[str, ...] = ()  # ``launch`` in ``accelerate launch``
    operands: int = 0  # words before the command that are neither options nor it: the image of ``docker run``
    runs_script: bool = False  # the first word behind the options is a script with arguments of its own, not a command
    values: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()  # options that take two
    flags: tuple[str, ...] = ()  # only those that often stand before the command
    nodes: tuple[str, ...] = ()  # options that give the number of nodes
    nodes_in: tuple[str, ...] = ()  # variables that do
    nodes_file: str = ""  # option that names a file that does
    ranks: tuple[str, ...] = ()  # options that give the number of ranks on all nodes
    hosts: tuple[str, ...] = ()
    host_files: tuple[str, ...] = ()
    host_variables: tuple[str, ...] = ()  # a batch system passes hosts in these, unseen in the command
    host_file: str = ""  # read without being asked
    each_node: tuple[str, ...] = ()  # options with which every node has a launcher of its own
    passes: bool = True
    passing: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    clearing: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()  # options whose value is a shell's text
    modules: tuple[str, ...] = ()  # options whose value is a module, which is the program
    assigns: bool = False  # ``env A=b``
    long_dash: bool = False  # ``-hostfile``: one dash, many letters
    differing: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()  # options that name the folder of what ranks print
    is_shared: bool = False  # a row for wrappers of which a letter has a value for one and none for another


#: Variables with the number of nodes or ranks; another value than one, or what is no number, may be several nodes.
NODE_VARIABLES = (
    "WORLD_SIZE", "PET_NNODES", "NNODES", "NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES",
    "OMPI_MCA_orte_num_nodes", "SKYPILOT_NUM_NODES", "AZUREML_NODE_COUNT", "SM_HOSTS",
)  # fmt: skip
#: Variables that differ at each start, or on each node.
DIFFERING_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK", "PET_RDZV_ID",
    "PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR", "PET_LOG_DIR", "LAGOM_JOB_ID", "LAGOM_DIR",
)  # fmt: skip

#: Options of launchers that run a script: with one of them the first word behind is a program, or an argument.
COMMAND_OPTIONS = ("--no-python", "-c", "--command-mode", "-")

#: Of what differs at each start, that which is the same on all nodes of the job.
NAMING_OPTIONS = (
    "--rdzv-id", "--rdzv-endpoint", "--master-addr", "--master-port", "--main-process-ip", "--main-process-port",
    "--main-address", "--main-port",
)  # fmt: skip
#: MASTER_ADDR is one of them, because it may be the only one: two PyTorchJobs have the same MASTER_PORT. Launchers of
#: two jobs that meet could agree while the nodes of one differ. So nodes with other MASTER_ADDRs never meet.
NAMING_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ID", "PET_RDZV_ENDPOINT",
    "SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID",
)  # fmt: skip

#: Of torchrun. --node-rank and --local-addr are other words on each node, and so is --rdzv-conf where it says
#: ``is_host=1`` on one of them; the rest of it is how long nodes wait for each other.
_RENDEZVOUS = (
    "--rdzv-id", "--rdzv-endpoint", "--rdzv-conf", "--master-addr", "--master-port", "--node-rank", "--local-addr",
)  # fmt: skip
_DOCKER_VALUES = (
    "--add-host", "--cap-add", "--cpus", "--cpuset-cpus", "--device", "--entrypoint", "--gpus", "-h", "--hostname",
    "--ipc", "-l", "--label", "-m", "--memory", "--mount", "--net", "--network", "--pid", "-p", "--publish",
    "--runtime", "--security-opt", "--shm-size", "--tmpfs", "-u", "--ulimit", "--user", "-v", "--volume", "-w",
    "--workdir", "--context", "-H", "-f", "--file",
)  # fmt: skip

_DOCKER = Launcher(
    names=("docker", "nerdctl", "docker-compose", "podman-compose"), passes=False, operands=1,
    verbs=("run", "exec", "container", "compose"),
    variables=("-e", "--env", "--env-file"), values=_DOCKER_VALUES, differing=("--name", "--cidfile"),
    flags=("--rm", "-i", "-t", "-it", "-ti", "-d", "--privileged", "--init"),
)  # fmt: skip
_NSYS = Launcher(
    names=("nsys",), verbs=("profile", "launch"),
    values=("-t", "--trace", "-s", "--sample", "-c", "--capture-range", "-x", "-y", "--delay", "-d", "--duration",
            "-w", "-f", "--force-overwrite", "-e", "--env-var", "--cuda-graph-trace", "--set", "-k", "--tool",
            "--capture-range-end", "--gpu-metrics-devices", "--cpuctxsw", "--backtrace", "--kill", "-b", "-n"),
    differing=("-o", "--output", "--session-new", "--session"),
)  # fmt: skip

LAUNCHERS = (
    # -- of ranks
    Launcher(
        names=("torchrun", "torch.distributed.run", "torch.distributed.launch"), starts=Starts.NODE, runs_script=True,
        nodes=("--nnodes",), nodes_in=("PET_NNODES",), logs=("--log-dir",), differing=(*_RENDEZVOUS, "--log-dir"),
        flags=("--standalone", "--no-python", "--run-path", "-m", "--module", "--use-env", "--virtual-local-rank"),
        values=("--nproc-per-node", "--rdzv-backend", "--max-restarts", "--monitor-interval", "--start-method",
                "--role", "-r", "--redirects", "-t", "--tee", "--local-ranks-filter", "--logs-specs", "--numa-binding",
                "--signals-to-handle", "--event-log-handler", "--duplicate-stdout-filters",
                "--duplicate-stderr-filters", "--shutdown-timeout"),
    ),
    Launcher(
        names=("accelerate", "accelerate-launch", "accelerate.commands.launch"), starts=Starts.NODE, runs_script=True,
        verbs=("launch",), nodes=("--num-machines",), nodes_file="--config-file",
        differing=("--main-process-ip", "--main-process-port", "--machine-rank", "--rdzv-conf", "--log-dir"),
        flags=("-m", "--module", "--multi-gpu", "--use-fsdp", "--use-deepspeed", "--no-python", "--debug"),
        values=("--num-processes", "--mixed-precision", "--num-cpu-threads-per-process", "--dynamo-backend",
                "--gpu-ids", "--rdzv-backend", "--same-network", "--role", "--tee", "--max-restarts",
                "--zero-stage", "--deepspeed-config-file", "--deepspeed-multinode-launcher"),
    ),
    Launcher(
        names=("deepspeed", "ds", "deepspeed.launcher.runner"), starts=Starts.HOSTS, runs_script=True,
        nodes=("--num-nodes",), hosts=("-i", "--include"), host_files=("-H", "--hostfile"),
        host_file="/job/hostfile", each_node=("--no-ssh",), differing=("--master-addr", "--master-port", "--node-rank"),
        flags=("--force-multi", "--module", "--no-python", "--no-local-rank", "--bind-cores-to-rank"),
        values=("-e", "--exclude", "--num-gpus", "--min-elastic-nodes", "--max-elastic-nodes", "--launcher",
                "--launcher-args", "--autotuning", "--ssh-port", "--venv-script"),
    ),
    Launcher(
        names=("colossalai",), starts=Starts.HOSTS, runs_script=True, verbs=("run",), hosts=("-H", "--host"),
        host_files=("--hostfile",), differing=("--master-addr", "--master-port"),
        values=("--nproc-per-node", "--num-nodes", "--include", "--exclude", "--ssh-port"),
    ),
    Launcher(
        names=("composer",), starts=Starts.NODE, runs_script=True, ranks=("--world-size",),
        differing=("--node-rank", "--base-rank", "--master-addr", "--master-port", "--stdout", "--stderr"),
        values=("-n", "--nproc"), flags=("-v", "--verbose", "-m", "--module-mode", "-c", "--command-mode"),
    ),
    Launcher(
        names=("lightning", "fabric"), starts=Starts.NODE, runs_script=True, verbs=("run", "model"),
        nodes=("--num-nodes",), differing=("--main-address", "--main-port", "--node-rank"),
        values=("--accelerator", "--strategy", "--devices", "--precision"),
    ),
    Launcher(
        names=("mpirun", "mpiexec", "orterun", "prun", "prterun"),
        starts=Starts.HOSTS, long_dash=True, variables=("-x", "--x", "-envlist", "-genvlist"),
        listing=("-envlist", "-genvlist"), clearing=("-envnone", "-genvnone"),
        pairs=("-mca", "--mca", "-gmca", "--gmca", "--prtemca", "--pmixmca", "-genv", "-env"),
        hosts=("-H", "-host", "-hosts", "--host", "--hosts"),
        host_files=("-f", "-hostfile", "-machinefile", "-configfile", "--hostfile", "--machinefile",
                    "--default-hostfile", "--app", "-app"),
        # a batch system or the user passes the hosts to mpirun in these
        host_variables=("PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile",
                        "OMPI_MCA_rmaps_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE"),
        differing=("-output-filename", "--output-filename", "-report-uri", "--report-uri", "-outfile-pattern"),
        flags=("--allow-run-as-root", "-allow-run-as-root", "--oversubscribe", "-oversubscribe", "-tag-output", "-v",
               "-q", "-l", "-verbose", "--display-map", "-display-map", "--tag-output", "--report-bindings"),
        values=("-n", "-np", "--np", "--n", "-c", "-N", "-ppn", "-npernode", "--npernode", "--map-by", "-map-by",
                "--bind-to", "-bind-to", "--rank-by", "-wdir", "--wdir", "-rf", "--rankfile", "--prefix", "-prefix"),
    ),
    # -- of ranks, elsewhere
    Launcher(
        names=("srun", "sbatch", "salloc", "flux", "jsrun", "aprun", "ibrun"), starts=Starts.AWAY,
        verbs=("run", "submit"), nodes=("-N", "--nodes"), variables=("--export",), listing=("--export",),
        flags=("-l", "--label", "-u", "--unbuffered", "--exclusive", "--overlap", "-K", "--pty", "-v", "-Q"),
        differing=("--jobid", "-J", "--job-name", "-o", "--output", "-e", "--error", "-w", "--nodelist", "--dependency",
                   "-d"),
        values=("-n", "--ntasks", "--ntasks-per-node", "-c", "--cpus-per-task", "-G", "--gpus", "--gpus-per-node",
                "--gpus-per-task", "--gres", "-p", "--partition", "-t", "--time", "-A", "--account", "--mem",
                "--cpu-bind", "--gpu-bind", "--mpi", "-x", "--exclude", "-C", "--constraint", "-D", "--chdir",
                "--container-image", "--container-mounts", "--container-workdir", "-q", "--qos", "-a", "-r"),
    ),
    Launcher(
        names=("pdsh", "clush", "dsh", "parallel-ssh", "pssh", "parallel", "horovodrun", "ray", "dask-mpi", "torchx",
               "sky", "dstack", "qsub", "bsub", "condor_submit", "systemd-run", "su", "runuser", "tmux", "screen"),
        starts=Starts.AWAY, values=("-w", "-h", "-H", "-g", "-np", "-S"),
    ),
    # -- wrappers that do not pass the environment by themselves
    Launcher(names=("ssh",), passes=False, operands=1, values=("-p", "-i", "-l", "-o", "-F", "-J")),
    Launcher(
        names=("kubectl", "oc"), passes=False, verbs=("exec", "run"), operands=1,
        values=("-n", "--namespace", "-c", "--container", "--context", "--kubeconfig", "--image", "--env"),
    ),
    _DOCKER,
    replace(_DOCKER, names=("podman",), passing=("--env-host",)),
    Launcher(
        names=("sudo",), passes=False, passing=("-E", "--preserve-env"), assigns=True, flags=("-n", "-H"),
        values=("-u", "--user", "-g", "--group", "-C", "-D", "--chdir", "-p", "-T"),
    ),
    Launcher(names=("doas", "pkexec"), passes=False, values=("-u", "-C", "--user")),
    # -- wrappers
    Launcher(
        names=("env", "export", "declare"), assigns=True, clearing=("-i", "-", "--ignore-environment"),
        scripts=("-S", "--split-string"), values=("-u", "--unset", "-C", "--chdir"), flags=("-x", "-0"),
    ),
    Launcher(
        names=("bash", "sh", "dash", "zsh", "ksh"), runs_script=True, scripts=("-c",),
        values=("-o", "-O", "--rcfile", "--init-file"), flags=("-l", "-e", "-x", "-u", "-i", "--login", "--norc"),
    ),
    Launcher(names=("eval",)),
    Launcher(
        names=("python", "pypy"), runs_script=True, modules=("-m",), values=("-W", "-X", "-c"),
        flags=("-u", "-O", "-B", "-E", "-I", "-s", "-S", "-v", "-q"),
    ),
    Launcher(
        names=("singularity", "apptainer"), verbs=("exec", "run"), operands=1, flags=("--nv", "--rocm", "-s"),
        clearing=("-e", "--cleanenv", "-C", "--containall"), variables=("--env", "--env-file"),
        values=("-B", "--bind", "-H", "--home", "-W", "--workdir", "--pwd", "-o", "--overlay", "--app"),
    ),
    Launcher(
        names=("bwrap",), clearing=("--clearenv",),
        pairs=("--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try", "--symlink",
               "--setenv", "--file"),
        values=("--chdir", "--unsetenv", "--proc", "--dev", "--tmpfs", "--dir", "--uid", "--gid", "--hostname"),
    ),
    Launcher(
        names=("ch-run",), operands=1, clearing=("--unset-env",),
        values=("--unset-env", "-b", "--bind", "-c", "--cd", "-g", "--gid", "-u", "--uid"), flags=("-w", "--write"),
    ),
    Launcher(
        names=("conda", "mamba", "micromamba"), verbs=("run",), values=("-n", "--name", "-p", "--prefix", "--cwd"),
        flags=("--no-capture-output", "--live-stream", "-v"),
    ),
    Launcher(
        names=("uv", "poetry", "pipenv", "pixi", "pdm", "rye", "hatch"), verbs=("run",), modules=("-m", "--module"),
        values=("--with", "--extra", "--group", "-p", "--python", "--env-file", "--project", "--directory", "-e",
                "--package", "-C", "--with-requirements"),
        flags=("--no-sync", "--frozen", "--locked", "--isolated", "-q", "--active", "--all-extras"),
    ),
    _NSYS,
    replace(_NSYS, names=("ncu", "rocprof", "compute-sanitizer"), verbs=(), is_shared=True),
    Launcher(
        is_shared=True,
        names=("numactl", "nice", "ionice", "stdbuf", "setsid", "nohup", "exec", "command", "time", "strace", "gdb",
               "xargs", "tini", "dumb-init", "catchsegv", "unbuffer", "if", "then", "elif", "else", "do", "while",
               "until", "!", "{"),
        values=("-N", "--cpunodebind", "-C", "--physcpubind", "-m", "--membind", "-i", "--interleave", "-p",
                "--preferred", "-n", "--adjustment", "-o", "--output", "-e", "--error", "-f", "-s", "-c"),
        flags=("--args", "-w", "--wait"),
    ),
    Launcher(names=("timeout",), operands=1, values=("-k", "--kill-after", "-s", "--signal"),
             flags=("--foreground", "--preserve-status", "-v", "--verbose")),
    Launcher(names=("taskset", "chrt"), operands=1, flags=("-c", "--cpu-list", "-a", "-r", "-f")),
    Launcher(names=("flock", "script"), operands=1, scripts=("-c", "--command"), flags=("-n", "-x", "-q", "-a"),
             values=("-w", "--timeout", "-E", "--conflict-exit-code")),
)  # fmt: skip
BY_NAME = {name: launcher for launcher in LAUNCHERS for name in launcher.names}
