"""Checks deploy/: fields against the schemas of Kubernetes, flags against the help of the programs, and a run by the
manifests' own commands over a real nats-server, where one is installed.

pip install kubernetes-validate && cargo build -p compare -p relay-sim && python3 deploy/check.py target/debug

Needs kubectl, which renders the manifests.
"""

import copy
import gzip
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import kubernetes_validate
import yaml

# The last release that the installed package knows, whatever kubectl is.
KUBERNETES = kubernetes_validate.latest_version()
DEPLOY = Path(__file__).resolve().parent
PASSWORDS = {"AGENT_PASSWORD": "a-secret", "COORDINATOR_PASSWORD": "c-secret"}
# No pod of the agents' Job is replaced, whatever ended it.
FAIL_JOB = [
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
]
SCHEDULING = "DuringSchedulingIgnoredDuringExecution"
APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "relay"}}}
# For a run in seconds; else as kustomization.yaml has it.
BRIEFLY = {"FORMATS": "json", "ROUNDS": "1", "BLOCK_SECONDS": "1"}


def render():
    """The documents that `kubectl apply` would send."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "kubernetes"
        shutil.copytree(DEPLOY / "kubernetes", copied)
        (copied / "passwords.env").write_text("".join(f"{name}={value}\n" for name, value in PASSWORDS.items()))
        output = subprocess.run(["kubectl", "kustomize", copied], check=True, stdout=subprocess.PIPE).stdout
    return [*yaml.safe_load_all(output), yaml.safe_load((DEPLOY / "kubernetes/reader.yaml").read_text())]


def called(document):
    return f"{document['kind']}/{document['metadata']['name']}"


def find(documents, name):
    """The document of a kind whose name may end in the hash that kustomize adds."""
    return next(document for document in documents if called(document).startswith(name))


def pod(document):
    """The pod that a document describes, if it describes one."""
    if document["kind"] == "Pod":
        return document["spec"]
    return document.get("spec", {}).get("template", {}).get("spec", {})


def containers(document):
    spec = pod(document)
    return spec.get("initContainers", []) + spec.get("containers", [])


def command(container):
    return container.get("command", []) + container.get("args", [])


def variables(documents, document, container):
    """What a container finds in its environment; of secrets as in PASSWORDS."""
    found = {"JOB_COMPLETION_INDEX": "0"} if document["spec"].get("completionMode") == "Indexed" else {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            found |= find(documents, f"ConfigMap/{source['configMapRef']['name']}")["data"]
        else:
            found |= PASSWORDS
    for variable in container.get("env", []):
        found[variable["name"]] = PASSWORDS[variable["valueFrom"]["secretKeyRef"]["key"]]
    return found


def known_flags(programs, words):
    """The flags of a program and its subcommand, from its help."""
    subcommand = [word for word in words[1:2] if not word.startswith("-")]
    program = programs / Path(words[0]).name
    said = subprocess.run([program, *subcommand, "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", said, re.MULTILINE))


def wrong_flags(programs, words):
    if not words or not words[0].startswith("/bin/"):
        return
    known = known_flags(programs, words)
    for word in words:
        flag = word.split("=")[0]
        if flag.startswith("--") and flag not in known:
            yield f"{words[0]} has no {flag}"


def commands_elsewhere():
    """The commands of compose.yaml and ssh.sh by their place, with the paths of the image."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    commands = {f"compose.yaml, {name}": service["command"] for name, service in services.items()}
    lines = (DEPLOY / "ssh.sh").read_text().replace("\\\n", " ").splitlines()
    said = [shlex.split(line) for line in lines if not line.startswith("#")]
    ours = [words[at:] for words in said for at, word in enumerate(words) if word.endswith("/compare")]
    ours = [words for words in ours if words[1:2] in (["agent"], ["run"])]
    for number, words in enumerate(ours, 1):
        commands[f"ssh.sh, command {number}"] = ["/bin/compare", *words[1:]]
    return commands


def loose_settings(spec):
    """Settings of the agents' Job that would start a pod twice, beside the relay, or pass a part for the whole."""
    template = spec["template"]["spec"]
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    affinity = template.get("affinity", {}).get("podAntiAffinity", {})
    for holds, fault in [
        (spec.get("backoffLimit") == 0, "backoffLimit is not 0"),
        (template.get("restartPolicy") == "Never", "restartPolicy is not Never"),
        (spec.get("podReplacementPolicy") == "Failed", "podReplacementPolicy is not Failed"),
        (all(rule in rules for rule in FAIL_JOB), "podFailurePolicy goes on without a pod"),
        (APART in affinity.get(f"required{SCHEDULING}", []), "a node may have the relay, too"),
        ("successPolicy" not in spec, "successPolicy takes a part for the whole"),
    ]:
        if not holds:
            yield fault


def faults(documents, commands, programs):
    """What is wrong, each with its place."""
    for document in documents:
        try:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{called(document)}: {'.'.join(map(str, error.absolute_path))}: {error.message}"
        for container in containers(document):
            place = f"{called(document)}, {container['name']}"
            yield from (f"{place}: {fault}" for fault in wrong_flags(programs, command(container)))
            named = set(re.findall(r"\$\(([A-Z_]+)\)", " ".join(command(container))))
            for name in named - set(variables(documents, document, container)):
                yield f"{place}: nobody sets {name}"
            resources = container["resources"]
            if resources["requests"] != resources["limits"]:
                yield f"{place}: requests are not limits, so that the pod's CPU is not its own"
    agents = find(documents, "Job/agents")["spec"]
    number = int(find(documents, "ConfigMap/settings")["data"]["AGENTS"])
    if (agents["completions"], agents["parallelism"]) != (number, number):
        yield f"Job/agents: {agents['completions']} completions and {agents['parallelism']} at a time, not {number}"
    yield from (f"Job/agents: {fault}" for fault in loose_settings(agents))
    for place, words in commands.items():
        yield from (f"{place}: {fault}" for fault in wrong_flags(programs, words))


def planted(documents, commands, programs):
    """Plants one fault at a time, and returns those that were not found."""

    def job(documents):
        return find(documents, "Job/agents")["spec"]

    def template(documents):
        return pod(find(documents, "Job/agents"))

    def agent(documents):
        return template(documents)["containers"][0]

    def apart(documents):
        return template(documents)["affinity"]["podAntiAffinity"]

    replacing, part = {"podReplacementPolicy": "TerminatingOrFailed"}, {"rules": [{"succeededCount": 1}]}
    def ssh(commands):
        return commands["ssh.sh, command 3"]

    plants = {
        "paralelism": lambda documents, _: job(documents).update(paralelism=2),
        "not of type 'integer'": lambda documents, _: job(documents).update(activeDeadlineSeconds="none"),
        "'weight' is a required": lambda documents, _: apart(documents)[f"preferred{SCHEDULING}"][0].pop("weight"),
        "has no --indx": lambda documents, _: agent(documents)["args"].append("--indx=0"),
        "nobody sets INDEX": lambda documents, _: agent(documents)["args"].append("--index=$(INDEX)"),
        "requests are not limits": lambda documents, _: agent(documents)["resources"]["requests"].pop("cpu"),
        "3 completions": lambda documents, _: job(documents).update(completions=3),
        "backoffLimit is not 0": lambda documents, _: job(documents).update(backoffLimit=1),
        "restartPolicy is not": lambda documents, _: template(documents).update(restartPolicy="OnFailure"),
        "podReplacementPolicy is not": lambda documents, _: job(documents).update(replacing),
        "podFailurePolicy goes on": lambda documents, _: job(documents)["podFailurePolicy"]["rules"].pop(),
        "a node may have the relay": lambda documents, _: apart(documents).pop(f"required{SCHEDULING}"),
        "successPolicy takes": lambda documents, _: job(documents).update(successPolicy=part),
        "agent-1: /bin/compare has no --alow": lambda _, commands: commands["compose.yaml, agent-1"].append("--alow"),
        "ssh.sh, command 3: /bin/compare has no --agent": lambda _, commands: ssh(commands).append("--agent=2"),
    }
    for text, plant in plants.items():
        copies = copy.deepcopy((documents, commands))
        plant(*copies)
        found = list(faults(*copies, programs))
        if len(found) != 1 or text not in found[0]:
            yield f"planted {text!r}, found {found}"


def half(sample):
    """The first half of a file of events, each behind its length as a varint: events that no program has."""
    stream, at = gzip.decompress(sample), 0
    while at < len(stream) // 2:
        length = shift = 0
        while stream[at] >= 128:
            length |= (stream[at] - 128) << shift
            at, shift = at + 1, shift + 7
        at += 1 + (length | stream[at] << shift)
    return gzip.compress(stream[:at])


class Site:
    """Starts what the manifests start, with addresses and folders of this machine."""

    def __init__(self, documents, programs, folder, stack):
        self.documents, self.folder, self.stack = documents, folder, stack
        self.replace = {"/bin/": f"{programs}/", "/results": f"{folder}/results", "/etc/nats": str(folder), "/data": str(folder)}

    def words(self, name, container, **variables_here):
        """The command of a container, as Kubernetes expands it, and its environment."""
        document = find(self.documents, name)
        described = next(one for one in containers(document) if one["name"] == container)
        environment = variables(self.documents, document, described)
        environment |= {name: value for name, value in (BRIEFLY | variables_here).items() if name in environment}

        def expand(word):
            word = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word)
            for before, after in self.replace.items():
                word = word.replace(before, after)
            return word

        return [expand(word) for word in command(described)], environment

    def start(self, words, environment, **options):
        path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        process = subprocess.Popen(words, env=path | environment, cwd=self.folder, text=True, **options)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def nats(self):
        settings = find(self.documents, "ConfigMap/nats")["data"]
        (self.folder / "nats.conf").write_text(settings["nats.conf"])
        words, environment = self.words("Deployment/nats", "nats")
        # Free ports of the loopback, which the server writes to a file.
        words = [word if word != "8222" else "-1" for word in words]
        words += ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", self.folder]
        self.start(words, environment, stderr=subprocess.DEVNULL)
        since = time.monotonic()
        while True:
            try:
                ports = json.loads(next(self.folder.glob("*.ports")).read_text())
                break
            except (StopIteration, json.JSONDecodeError):
                assert time.monotonic() - since < 10, "nats-server does not start"
                time.sleep(0.05)
        self.replace |= {
            "nats:4222": ports["nats"][0].removeprefix("nats://"),
            "nats:8222": ports["monitoring"][0].removeprefix("http://"),
        }

    def relay(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.replace |= {"relay:7777": address, "0.0.0.0:7777": address}
        return self.start(*self.words("Job/relay", "relay"))


def play(documents, programs):
    """Plays a run by the commands of the manifests, the init containers' among them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = Site(documents, programs, folder, stack)
        site.nats()
        relay = site.relay()
        number = int(find(documents, "ConfigMap/settings")["data"]["AGENTS"])
        agents = []
        for index in range(number):
            waits = site.start(*site.words("Job/agents", "wait-for-nats"), stdout=subprocess.DEVNULL)
            assert waits.wait(20) == 0, "the server answers"
            agents.append(site.start(*site.words("Job/agents", "agent", JOB_COMPLETION_INDEX=str(index))))
        waits = site.start(*site.words("Job/coordinator", "wait-for-agents"), stdout=subprocess.DEVNULL)
        assert waits.wait(20) == 0, "all agents are connected"
        events = folder / "half.pb.gz"
        events.write_bytes(half((DEPLOY.parent / "data/sample.pb.gz").read_bytes()))
        words, environment = site.words("Job/coordinator", "coordinator")
        coordinator = site.start([*words, f"--corpus={events}"], environment, stdout=subprocess.DEVNULL)
        # 3: times are no evidence on a busy machine.
        code = coordinator.wait(120)
        assert code in (0, 3), f"the coordinator ended with {code}"
        assert [agent.wait(10) for agent in [*agents, relay]] == [0] * (number + 1)
        written = [file.read_bytes() for file in folder.glob("results/**/*") if file.is_file()]
        secrets = [secret.encode() for secret in PASSWORDS.values()]
        assert not any(secret in text for text in written for secret in secrets), "a password is in the result"
        result = json.loads(next(folder.glob("results/*/result.json")).read_text())
        records = [block["record"] for cell in result["cells"] for block in cell["blocks"]]
        assert all(record["relay_cpu"] for record in records), "the relay's host reads its CPU"
        shares = [len(record["agents"]) for record in records]
        assert shares and set(shares) == {number}, f"blocks have the records of {shares} agents"
        fetched = [file for file in folder.glob("*.pb.gz") if file != events]
        assert [file.read_bytes() for file in fetched] == [events.read_bytes()], "agents fetched the run's events"
        print(f"{number} agents played {len(shares)} blocks by the manifests' commands")


def main():
    programs = Path(sys.argv[1]).resolve()
    documents = render()
    commands = commands_elsewhere()
    wrong = list(faults(documents, commands, programs)) or list(planted(documents, commands, programs))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(documents)} documents follow Kubernetes {KUBERNETES}; flags are known; planted faults are found")
    if shutil.which("nats-server"):
        play(documents, programs)
    else:
        print("NOT TESTED, for want of nats-server: a run by the manifests' commands", file=sys.stderr)


if __name__ == "__main__":
    main()
