"""Tutti for Spack 1.0 and newer: copy it to packages/tutti/ of a repository of yours (`spack repo create`), and say in `git`
where the sources are."""

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Tutti(CMakePackage, CudaPackage):
    """Collective communication whose plans are data, and are proved before they run: all-reduce, all-gather,
    all-to-all, point-to-point and the rest over shared memory, TCP, RDMA verbs and UCX, for CPUs and GPUs."""

    git = "https://tutti.invalid/tutti.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("nccl", default=True, description="libnccl.so.2, NCCL's interface on Tutti")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("highway@1.0:")
    depends_on("hwloc@2.9:")
    depends_on("xxhash@0.8:")
    depends_on("pugixml")
    depends_on("libsodium@1.0.18:")
    depends_on("zstd")
    depends_on("rdma-core")
    depends_on("ucx@1.13:")
    depends_on("fmt@9:")
    depends_on("spdlog")
    depends_on("cli11")
    depends_on("nlohmann-json@3.11:")
    depends_on("cuda@13:", when="+cuda")

    conflicts("cuda_arch=none", when="+cuda", msg="+cuda needs cuda_arch, as cuda_arch=90")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("TUTTI_BUILD_TESTS", False),
            self.define("TUTTI_EXAMPLES", False),
            self.define("TUTTI_LABORATORY", False),
            self.define("TUTTI_WERROR", False),
            self.define_from_variant("TUTTI_NCCL", "nccl"),
            self.define_from_variant("TUTTI_CUDA", "cuda"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("TUTTI_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def check(self):
        """Tests are not built: what is installed adds numbers instead (test_all_reduce)."""

    def test_all_reduce(self):
        """four ranks of this host add numbers, and compare the results"""
        tutti = which(self.prefix.bin.tutti)
        tutti("run", "-n", "4", self.prefix.bin.all_reduce_perf, "-b", "8", "-e", "64K", "-f", "8")
