"""Starts the profile of tuned in other root directories, with tuned's own loader and plug-ins.

Releases before 2.11 run the program sysctl, which needs root, unshare and mount here: it sees the directories of the root directory.

Usage: start.py RELEASE, the directory with a release of tuned, for example from "dpkg-deb -x". Reads root directories from standard input.
Prints for each the changed values below /proc/sys: after the profile alone, and after tuned has also set the system's sysctls again.
"""

import builtins
import inspect
import json
import os
import subprocess
import sys
import tempfile

release = sys.argv[1]
sys.path.insert(0, release + "/usr/lib/python3/dist-packages")

import tuned.consts as consts
import tuned.logs
from tuned.plugins.instance.factory import Factory as Instances
from tuned.plugins.plugin_sysctl import SysctlPlugin
from tuned.plugins.plugin_vm import VMPlugin
from tuned.profiles import Loader, Locator, Merger
from tuned.profiles.factory import Factory as Profiles
from tuned.profiles.variables import Variables
from tuned.units import Manager
from tuned.utils.commands import commands
from tuned.utils.global_config import GlobalConfig

tuned.logs.get().setLevel(100)
root = ""


def inside(path):
    moved = str(path).startswith(("/etc/tuned", "/usr/lib/tuned", "/etc/sysctl", "/run/sysctl", "/proc/sys", "/opt/tuned"))
    return root + path if moved else path


def move(owner, name):
    original = getattr(owner, name)
    setattr(owner, name, lambda path, *args, **kwargs: original(inside(path), *args, **kwargs))


for owner, name in ((builtins, "open"), (os, "listdir"), (os.path, "isfile"), (os.path, "exists")):
    move(owner, name)


empty = tempfile.TemporaryDirectory()


def run(_, args, *__, **___):
    if args[0] != "sysctl":
        raise NotImplementedError(args)
    script = "mount --make-rprivate / && "
    script += " && ".join('mount --bind "$0%s" %s' % (path, path) for path in ("/run", "/etc", "/proc/sys") if os.path.isdir(root + path))
    script += ''.join(' && mount --bind "$1" %s' % path for path in ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d") if os.path.isdir(path))
    argv = ["unshare", "--mount", "sh", "-c", script + ' && shift && exec "$@"', root, empty.name] + args
    found = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    return found.returncode, found.stdout


commands.execute = run


class Store(dict):
    def create(self, _):
        return Store()

    def set(self, key, value):
        self[key] = value

    def unset(self, key):
        self.pop(key, None)


class Hardware:
    def start_processing_events(self):
        pass


class Plugins:
    def __init__(self, config, variables):
        self.config, self.variables = config, variables

    def create(self, name):
        plugin = {"sysctl": SysctlPlugin, "vm": VMPlugin}[name]
        return plugin(None, Store(), Hardware(), None, None, Instances(), self.config, self.variables)


def values():
    found = {}
    for directory, _, names in os.walk(root + "/proc/sys"):
        for name in names:
            with open(os.path.join(directory, name)) as file:
                found[os.path.relpath(os.path.join(directory, name), root + "/proc/sys")] = " ".join(file.read().split())
    return found


def start(reapplies):
    config = GlobalConfig()
    if not reapplies:
        config.set(consts.CFG_REAPPLY_SYSCTL, False)
    if hasattr(consts, "LOAD_DIRECTORIES"):
        directories = consts.LOAD_DIRECTORIES
    else:
        directories = config.get_list(consts.CFG_PROFILE_DIRS, consts.CFG_DEF_PROFILE_DIRS)
    variables = Variables()
    with open("/etc/tuned/active_profile") as file:
        active = file.read().split()
    locator = Locator(directories)
    if any(name not in locator.get_known_names() for name in active):
        raise FileNotFoundError(active)
    profile = Loader(locator, Profiles(), Merger(), config, variables).load(active)
    count = len(inspect.signature(Manager.__init__).parameters) - 1
    manager = Manager(*[Plugins(config, variables), None, 0, Hardware(), config][:count])
    manager.create(profile.units)
    manager.start_tuning()
    return values()


def restore(before):
    for name, value in before.items():
        with open(root + "/proc/sys/" + name, "w") as file:
            file.write(value + "\n")


for line in sys.stdin:
    root = line.strip()
    before = values()
    result = {}
    try:
        for step, reapplies in (("profile", False), ("all", True)):
            result[step] = {name: value for name, value in start(reapplies).items() if value != before[name]}
            restore(before)
    except Exception as error:
        result = {"error": type(error).__name__}
        restore(before)
    print(json.dumps(result, sort_keys=True), flush=True)
