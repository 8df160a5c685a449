#include "tools/doctor/doctor_versions.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "tools/command_line/programs.h"
#include "tools/output_of.h"

namespace tutti {
namespace {

constexpr auto kVersionPatience = std::chrono::seconds(20);

// Prints "Python 3.11.2", then a line "name<TAB>version<TAB>place" for each package that is
// installed, without importing it.
constexpr const char* kPackages = R"(
import importlib.metadata as metadata
import platform
print("Python", platform.python_version())
for name in ["tutti", "torch", "mpi4py", "jax", "numpy"]:
    try:
        package = metadata.distribution(name)
        print(name, package.version, package.locate_file(name), sep="\t")
    except metadata.PackageNotFoundError:
        pass
)";

struct Package {
  std::string name, version, place;
};

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<Package> packages_of(const std::string& printed) {
  std::vector<Package> packages;
  for (std::string_view rest = printed; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t one = line.find('\t');
    const std::size_t two = line.find('\t', one + 1);
    if (one == line.npos || two == line.npos) continue;
    packages.push_back({std::string(line.substr(0, one)),
                        std::string(line.substr(one + 1, two - one - 1)),
                        std::string(line.substr(two + 1))});
  }
  return packages;
}

void show_python(DoctorReport& report, const std::string& python) {
  const Output output = output_of({python, "-c", kPackages}, kVersionPatience);
  if (output.status == Output::kNotFound) {
    report.good("Python", fmt::format("there is no {}", python));
    return;
  }
  if (output.status != 0) {
    report.bad("Python", fmt::format("{}: {}", python, output.complaint),
               "`tutti doctor --python PROGRAM` looks at another one");
    return;
  }
  std::string others;
  bool ours = false;
  for (const Package& package : packages_of(output.text)) {
    ours = ours || package.name == "tutti";
    if (package.name != "tutti") {
      others += fmt::format(", {} {}", package.name, package.version);
    } else if (package.version == TUTTI_VERSION) {
      report.good("Python package", fmt::format("{}, in {}", package.version, package.place));
    } else {
      report.bad("Python package", fmt::format("{}, in {}", package.version, package.place),
                 "this program is Tutti " TUTTI_VERSION
                 ": install both from one release, or start "
                 "ranks by the `tutti` of that package");
    }
  }
  if (!ours)
    report.good("Python package",
                fmt::format("none of Tutti: `{} -m pip install FILE.whl`", python));
  report.good("Python", first_line_of(output.text) + others);
}

/// A library as the loader finds it, for as long as this lives.
class Library {
 public:
  explicit Library(const char* name)
      : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL), [](void* h) {
          if (h != nullptr) dlclose(h);
        }) {}
  explicit operator bool() const { return handle_ != nullptr; }
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_.get(), name));
  }
  std::string place() const {
    link_map* map = nullptr;
    return dlinfo(handle_.get(), RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "?";
  }

 private:
  std::unique_ptr<void, void (*)(void*)> handle_;
};

void show_nccl(DoctorReport& report) {
  const Library nccl("libnccl.so.2");
  if (!nccl) return report.good("NCCL", "the loader finds no libnccl.so.2");
  int version = 0;
  if (auto* get = nccl.function<int(int*)>("ncclGetVersion"); get != nullptr) get(&version);
  report.good("NCCL", fmt::format("{}.{}.{}, {}", version / 10000, version / 100 % 100,
                                  version % 100, nccl.place()));
}

/// The launcher, and the libraries by name alone: an MPI that is loaded may start something.
void show_mpi(DoctorReport& report) {
  const Output launcher = output_of({"mpiexec", "--version"}, kVersionPatience);
  std::string text = launcher.status == 0 ? first_line_of(launcher.text) : "no mpiexec";
  const std::string known = output_of({"/sbin/ldconfig", "-p"}, kVersionPatience).text;
  for (const char* const name : {"libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40"}) {
    const std::size_t at = known.find(fmt::format("\t{} ", name));
    if (at == std::string::npos) continue;
    const std::string line = first_line_of(known.substr(at));
    text += fmt::format(", {}", line.substr(line.rfind(' ') + 1));
  }
  report.good("MPI", text);
}

void show_cuda(DoctorReport& report) {
  const Library driver("libcuda.so.1");
  int version = 0;
  auto* const get = driver ? driver.function<int(int*)>("cuDriverGetVersion") : nullptr;
  if (get == nullptr || get(&version) != 0) return report.good("CUDA", "no driver");
  report.good("CUDA", fmt::format("the driver has {}.{}, {}", version / 1000, version % 1000 / 10,
                                  driver.place()));
}

}  // namespace

void show_versions(DoctorReport& report, const std::string& python) {
  report.section("Versions");
  report.good("tutti", fmt::format("{}, {}", TUTTI_VERSION, tutti_program().string()));
  show_python(report, python);
  show_nccl(report);
  show_mpi(report);
  show_cuda(report);
}

}  // namespace tutti
