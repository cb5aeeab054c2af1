"""What the kernel's control groups are understood to say."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support import TestCase, examples
from twisted_gateway.cgroup import MAX_THREADS, Limits, read_limits

MIB = 1 << 20
V2 = "31 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 24 0:27 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 24 0:28 {root} /sys/fs/cgroup/memory rw shared:10 master:4 - cgroup cgroup rw,memory\n"
    "33 24 0:29 {root} /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
)
V1_GROUPS = "4:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:{path}\n"
UNLIMITED_V1 = "9223372036854771712\n"


class LimitsTests(TestCase):
    """`read_limits` on trees of files as kernels, container runtimes and others make them."""

    def setUp(self) -> None:
        """Begin with an empty root."""
        super().setUp()
        self.root = Path(self.mktemp())
        self.root.mkdir(parents=True)

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def tree(self, groups: str, mounts: str, **files: str | bytes) -> None:
        """Write /proc, and files below /sys/fs/cgroup, "__" standing for a slash, "_" for a dot."""
        self.write("proc/self/cgroup", groups)
        self.write("proc/self/mountinfo", mounts)
        for name, text in files.items():
            place = name.replace("__", "/").replace("_max", ".max")
            self.write(f"sys/fs/cgroup/{place}", text)

    def v1(self, directory: str, *, quota: str = "-1", memory: str = UNLIMITED_V1) -> None:
        self.write(f"sys/fs/cgroup/cpu,cpuacct/{directory}/cpu.cfs_quota_us", f"{quota}\n")
        self.write(f"sys/fs/cgroup/cpu,cpuacct/{directory}/cpu.cfs_period_us", "100000\n")
        self.write(f"sys/fs/cgroup/memory/{directory}/memory.limit_in_bytes", memory)

    def read(self, usable_cpus: int = 8) -> Limits:
        return read_limits(self.root, usable_cpus)

    def test_a_container_with_a_namespace(self) -> None:
        """Version 2 as a pod sees it: its own group is the root of what is mounted."""
        self.tree("0::/\n", V2, cpu_max="50000 100000\n", memory_max=f"{512 * MIB}\n")
        self.assertEqual(self.read(), Limits(8, 0.5, 512 * MIB))

    def test_no_limits(self) -> None:
        """Version 2 with `max`, and a root group, which has none of the files."""
        self.tree("0::/\n", V2, cpu_max="max 100000\n", memory_max="max\n")
        self.assertEqual(self.read(), Limits(8))
        self.tree("0::/elsewhere\n", V2)
        self.assertEqual(self.read(), Limits(8))

    def test_the_tightest_group_counts(self) -> None:
        """A limit of the pod holds for its containers, whatever theirs say."""
        self.tree(
            "0::/pods/pod/it\n",
            V2,
            pods__cpu_max="400000 100000",
            pods__memory_max=str(4096 * MIB),
            pods__pod__cpu_max="150000 100000",
            pods__pod__memory_max=str(768 * MIB),
            pods__pod__it__cpu_max="max 100000",
            pods__pod__it__memory_max=str(1024 * MIB),
        )
        self.assertEqual(self.read(), Limits(8, 1.5, 768 * MIB))

    def test_version_1(self) -> None:
        """Quota and limit of controllers that are mounted apart; -1 and 2**63 are none."""
        self.tree(V1_GROUPS.format(path="/pods/it"), V1.format(root="/"))
        self.v1("")
        self.v1("pods")
        self.v1("pods/it", quota="50000", memory=str(512 * MIB))
        self.assertEqual(self.read(), Limits(8, 0.5, 512 * MIB))
        self.v1("pods/it")
        self.assertEqual(self.read(), Limits(8))
        self.v1("pods", quota="25000", memory=str(64 * MIB))
        self.assertEqual(self.read(), Limits(8, 0.25, 64 * MIB))

    def test_version_1_without_a_namespace(self) -> None:
        """The path is the node's while the group alone is mounted."""
        self.tree(V1_GROUPS.format(path="/kubepods/a/b"), V1.format(root="/kubepods/a/b"))
        self.v1("", quota="200000", memory=str(256 * MIB))
        self.assertEqual(self.read(), Limits(8, 2.0, 256 * MIB))

    def test_a_path_that_leads_elsewhere(self) -> None:
        """What is mounted is read where the path is outside of it, or leads out of it."""
        for path in ("/other/group", "/../../up", "/kubepods/ab"):
            self.tree(V1_GROUPS.format(path=path), V1.format(root="/kubepods/a"))
            self.v1("", quota="10000")
            self.assertEqual(self.read(), Limits(8, 0.1))

    def test_both_versions(self) -> None:
        """Side by side: version 2 has no controllers then, and version 1 is what limits."""
        unified = "40 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        groups = V1_GROUPS.format(path="/") + "0::/\n"
        self.tree(groups, unified + V1.format(root="/"), unified__cgroup_controllers="\n")
        self.v1("", quota="300000", memory=str(128 * MIB))
        self.assertEqual(self.read(), Limits(8, 3.0, 128 * MIB))

    def test_an_odd_mount_point(self) -> None:
        """Blanks and backslashes stand in mountinfo in octal."""
        point = "/mnt/my\\040groups\\134x"
        self.write("proc/self/cgroup", "0::/a:b\n")
        self.write("proc/self/mountinfo", f"31 24 0:27 / {point} rw - cgroup2 none rw\n")
        self.write("mnt/my groups\\x/a:b/memory.max", str(MIB))
        self.assertEqual(self.read().memory_bytes, MIB)

    def test_what_says_nothing_is_no_limit(self) -> None:
        """Garbage, nothing, zero, numbers beyond all bounds; never an error."""
        cases: list[str | bytes] = [
            "",
            "\n",
            "max",
            "50000",
            "50000 0",
            "0 100000",
            "-1 100000",
            "5e4 100000",
            "50000 100000 7",
            "\u0665 100000",
            "9" * 5000 + " 1",
            b"\xff\xfe \x00",
            "0x10 100000",
        ]
        for case in cases:
            self.tree("0::/\n", V2, cpu_max=case, memory_max=case if case != "50000" else "x")
            self.assertEqual(self.read(), Limits(8), case)

    def test_broken_proc(self) -> None:
        """Files that are absent, cut short, or directories; never an error."""
        self.assertEqual(self.read(), Limits(8))
        for groups, mounts in (
            ("0", V2),
            ("0::", V2[:40]),
            ("::\n:::::", "a b c d e - cgroup2 x y\n - \n- - -\n1 2 3 4 /x - cgroup2\n"),
            ("0::/" + "a/" * 4000, V2),
            ("0::/\x00", V2),
        ):
            self.tree(groups, mounts)
            self.assertEqual(self.read(), Limits(8))
        (self.root / "sys/fs/cgroup/cpu.max").mkdir(parents=True)
        self.tree("0::/", V2)
        self.assertEqual(self.read(), Limits(8))

    @examples(60)
    @given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=60))
    def test_anything(self, groups: bytes, mounts: bytes, limit: bytes) -> None:
        """No content of any of these files keeps a gateway from starting."""
        for name, text in (
            ("proc/self/cgroup", b"0::/\n" + groups),
            ("proc/self/mountinfo", mounts + b"\n" + V2.encode()),
            ("sys/fs/cgroup/cpu.max", limit),
            ("sys/fs/cgroup/memory.max", limit),
        ):
            self.write(name, text)
        limits = self.read()
        self.assertGreater(limits.cpus, 0)
        self.assertTrue(limits.describe())

    def test_the_affinity_bounds_the_quota(self) -> None:
        """Four CPUs' time is none on two CPUs; without a quota it is the CPUs that count."""
        self.assertEqual(Limits(2, 4.0).cpus, 2)
        self.assertEqual(Limits(2).cpus, 2)
        self.assertEqual(Limits(64, 0.25).cpus, 0.25)

    def test_this_machine(self) -> None:
        """At least one CPU, whatever this machine is."""
        self.assertGreaterEqual(read_limits().usable_cpus, 1)


class ThreadsTests(TestCase):
    """How many threads the reactor's pool is given."""

    def test_by_the_quota(self) -> None:
        """Four more than the CPUs that it gets, whatever the node has, and bounded."""
        sizes = {
            Limits(64, 0.1): 5,
            Limits(64, 0.5): 5,
            Limits(64, 1.5): 6,
            Limits(64, 4.0): 8,
            Limits(2): 6,
            Limits(256): MAX_THREADS,
        }
        self.assertEqual({limits: limits.threads for limits in sizes}, sizes)

    def test_words(self) -> None:
        """What the log says of it."""
        self.assertEqual(
            Limits(2, 0.5, 512 * MIB).describe(),
            "0.5 CPUs by quota, of 2; 512 MiB of memory; threads of the reactor's pool: 5",
        )
        self.assertEqual(
            Limits(2).describe(),
            "2 CPUs (no quota); no limit of memory; threads of the reactor's pool: 6",
        )
