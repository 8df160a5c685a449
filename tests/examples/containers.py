"""The files of examples/containers, as far as this machine can check them: `docker compose config` and
`kubectl --dry-run=client`, where these work, and in any case the fields on which a job depends.

Usage: containers.py FOLDER. Ends with 77 (skipped) where there is no YAML parser.
"""

import pathlib
import re
import shutil
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])


def dry_run(what, *command):
    """Whether the tool is here and could check; ends the test where it objects."""
    if shutil.which(command[0]) is None:
        print(f"not checked by {what}: it is not installed")
        return
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    # A client without its plugin or without a cluster says nothing about the file.
    absent = re.search(r"is not a docker command|unknown command|unknown shorthand flag|"
                       r"connection refused|no configuration has been provided|was refused|"
                       r"couldn't get current server", done.stderr)
    if done.returncode == 0:
        print(f"checked by {what}")
    elif absent:
        print(f"not checked by {what}: {done.stderr.strip().splitlines()[-1]}")
    else:
        sys.exit(f"{what} objects:\n{done.stderr}")


dry_run("docker compose", "docker", "compose", "-f", "compose.yaml", "config", "--quiet")
dry_run("kubectl", "kubectl", "create", "--dry-run=client", "-f", "kubernetes.yaml")

try:
    import yaml
except ImportError:
    print("skipped: Python has no YAML parser (Debian's python3-yaml)")
    sys.exit(77)


def need(condition, what):
    if not condition:
        sys.exit(f"{what} is wrong")


def hosts_in(path):
    """The hosts of the `tutti run -H` that the file's comment shows, and their ranks."""
    words = re.search(r"tutti run -H (\S+)", path.read_text())[1]
    return dict(word.split(":") for word in words.split(","))


compose_path = folder / "compose.yaml"
compose = yaml.safe_load(compose_path.read_text())
services = compose["services"]
need(set(services) == set(hosts_in(compose_path)), "the list of services")
for name, service in services.items():
    need(service["hostname"] == name, f"the hostname of {name}: tutti run would not know itself")
    need(service["cpus"] >= int(hosts_in(compose_path)[name]), f"cpus of {name}")
    need(service["image"] == "tutti-node" and service["cap_add"] == ["SYS_PTRACE"], name)
    need(service["ulimits"]["memlock"] == -1, f"memlock of {name}")
    secrets = [compose["secrets"][secret["source"]] for secret in service["secrets"]]
    need(secrets == [{"file": "./key"}], f"the key of {name}")
    need(service["secrets"][0]["target"] == "/keys/key", f"the place of the key of {name}")

pods_path = folder / "kubernetes.yaml"
service, pods = yaml.safe_load_all(pods_path.read_text())
need(service["kind"] == "Service" and pods["kind"] == "StatefulSet", "the kinds of objects")
need(service["spec"]["clusterIP"] == "None", "the service, which has to be headless,")
need(service["spec"]["publishNotReadyAddresses"] is True, "publishNotReadyAddresses")
need(pods["spec"]["serviceName"] == service["metadata"]["name"], "serviceName")
template = pods["spec"]["template"]
need(template["metadata"]["labels"] == service["spec"]["selector"], "the service's selector")
need(template["metadata"]["labels"] == pods["spec"]["selector"]["matchLabels"], "matchLabels")
names = {f"{pods['metadata']['name']}-{i}.{service['metadata']['name']}"
         for i in range(pods["spec"]["replicas"])}
need(names == set(hosts_in(pods_path)), "the list of hosts")
(container,) = template["spec"]["containers"]
resources = container["resources"]
need(resources["requests"] == resources["limits"], "requests, which have to equal limits,")
need(isinstance(resources["limits"]["cpu"], int), "the number of whole cores")
need(all(int(n) <= resources["limits"]["cpu"] for n in hosts_in(pods_path).values()), "cpu")
volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
need(mounts["/keys"]["secret"]["defaultMode"] == 0o400, "the mode of the key")
need(mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory", "/dev/shm")
ports = {container["readinessProbe"]["tcpSocket"]["port"], container["ports"][0]["containerPort"],
         service["spec"]["ports"][0]["port"]}
need(ports == {22}, "the port of sshd")
print("the fields are right")
