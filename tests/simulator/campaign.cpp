// See campaign.h.
#include "tests/simulator/campaign.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tutti::simulator {
namespace {

constexpr unsigned kPatience = 60;  // seconds of the real clock, for one history

/// What a history leaves to the process that has started it.
struct Left {
  Result result() const { return {hash, steps, lasted, broken}; }
  std::uint64_t hash, steps;
  Time lasted;
  char broken[1024];
  bool is_over;
};

Left& left() {
  static auto* const shared = static_cast<Left*>(
      mmap(nullptr, sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

}  // namespace

std::vector<Module> load_modules(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  const std::string bytes = all.str();
  std::vector<Module> modules;
  for (int r = 0; r < kMostRanks; ++r) {
    std::string path = file;  // the first one: where a profiler finds its names
    if (r > 0) {
      const int fd = memfd_create("simulated-rank", MFD_CLOEXEC);
      if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("a copy of " + file + ": " + std::strerror(errno));
      }
      path = "/proc/self/fd/" + std::to_string(fd);
    }
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto function = [&](const char* name) {
      void* const found = dlsym(library, name);
      if (found == nullptr) throw std::runtime_error(dlerror());
      return found;
    };
    modules.push_back({reinterpret_cast<RankFunction>(function("tutti_simulated_rank")),
                       reinterpret_cast<ExitFunction>(function("tutti_simulated_exit")),
                       reinterpret_cast<WarmFunction>(function("tutti_simulated_warm"))});
    modules.back().warm();
  }
  return modules;
}

Verdict try_plan(const Plan& plan, const std::vector<Module>& modules, bool tells) {
  Left& from = left();
  std::memset(&from, 0, sizeof from);
  std::fflush(stdout);
  const pid_t child = _Fork();  // without the handlers that the modules have registered
  if (child == 0) {
    alarm(kPatience);
    const Result result = run_history(plan, modules, tells);
    from.hash = result.hash;
    from.steps = result.steps;
    from.lasted = result.lasted;
    std::snprintf(from.broken, sizeof from.broken, "%s", result.broken.c_str());
    from.is_over = true;
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Verdict verdict{from.result(), {}};
  if (!from.is_over) {
    verdict.crash = WIFSIGNALED(status) ? std::string("signal ") + strsignal(WTERMSIG(status))
                                        : "exit " + std::to_string(WEXITSTATUS(status));
  }
  return verdict;
}

Plan shortened(Plan plan, const std::vector<Module>& modules) {
  const auto breaks = [&](const Plan& p) { return !try_plan(p, modules, false).is_right(); };
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (std::size_t f = plan.faults.size(); f-- > 0;) {
      Plan less = plan;
      less.faults.erase(less.faults.begin() + static_cast<std::ptrdiff_t>(f));
      if (breaks(less)) plan = less, shorter = true;
    }
    for (std::size_t s = plan.steps.size(); s-- > 0;) {
      Plan less = plan;
      less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(s));
      if (breaks(less)) plan = less, shorter = true;
    }
    const auto has_last = [&](const Fault& f) {
      return f.rank == plan.ranks - 1 || f.other == plan.ranks - 1;
    };
    if (plan.ranks > 2 && std::ranges::none_of(plan.faults, has_last)) {
      Plan less = plan;
      --less.ranks;
      if (breaks(less)) plan = less, shorter = true;
    }
    Plan calm = plan;
    calm.weather = {};
    if (calm.weather != plan.weather && breaks(calm)) plan = calm, shorter = true;
    Plan plain = plan;
    plain.encrypted = false;
    if (plan.encrypted && breaks(plain)) plan = plain, shorter = true;
  }
  return plan;
}

}  // namespace tutti::simulator
