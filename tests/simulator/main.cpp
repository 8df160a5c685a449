// The simulator's program:
//
//     simulate [--module FILE] --seeds FIRST COUNT     the histories of so many seeds
//     simulate [--module FILE] --seed N [--story] [--shorten]
//
// It prints the seeds whose histories break an invariant, and ends with 1 if there are any. --story
// tells what happens; --shorten first leaves out what the break does not need. --finds: it ends
// with 0 at the first seed that breaks one with this module and none with the library as it is, and
// with 1 if there is no such seed.
#include <malloc.h>
#include <sys/personality.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tests/simulator/campaign.h"
#include "tests/simulator/fiber.h"

namespace {

using namespace tutti::simulator;

constexpr std::uint64_t kTwice = 64;  // one of so many histories is repeated, and is to be the same

struct Arguments {
  std::string module = TUTTI_SIMULATED_RANK;
  std::uint64_t first = 1, count = 0;
  bool is_one = false, tells = false, shortens = false, finds = false;
};

Arguments arguments_of(int argc, char** argv) {
  Arguments a;
  const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 0; };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--module" && i + 1 < argc) a.module = argv[++i];
    if (word == "--seeds") {
      a.first = number(++i);
      a.count = number(++i);
    }
    if (word == "--seed") {
      a.first = number(++i);
      a.count = 1;
      a.is_one = true;
    }
    if (word == "--story") a.tells = true;
    if (word == "--shorten") a.shortens = true;
    if (word == "--finds") a.finds = true;
  }
  return a;
}

int one(const Arguments& a, const std::vector<Module>& modules) {
  Plan plan = plan_of(a.first);
  if (a.shortens) plan = shortened(std::move(plan), modules);
  std::printf("%s\n", text_of(plan).c_str());
  const Verdict verdict = try_plan(plan, modules, a.tells);
  std::printf(
      "%s; %.3f s, %lu steps, hash %016lx\n", verdict.is_right() ? "right" : verdict.text().c_str(),
      static_cast<double>(verdict.result.lasted) * 1e-9, verdict.result.steps, verdict.result.hash);
  return verdict.is_right() ? 0 : 1;
}

/// `right`: of the library as it is; with --finds alone.
int many(const Arguments& a, const std::vector<Module>& modules, const std::vector<Module>& right) {
  std::uint64_t broken = 0, hash = 0;
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint64_t seed = a.first; seed < a.first + a.count; ++seed) {
    Verdict verdict = try_plan(plan_of(seed), modules, false);
    if (seed % kTwice == 0 &&
        verdict.result.hash != try_plan(plan_of(seed), modules, false).result.hash) {
      verdict.result.broken = "it differs when it is repeated";
    }
    hash = hash * 31 + verdict.result.hash;
    if (verdict.is_right()) continue;
    if (a.finds && !try_plan(plan_of(seed), right, false).is_right()) continue;
    ++broken;
    std::printf("seed %lu: %s\n", seed, verdict.text().c_str());
    std::fflush(stdout);
    if (!a.finds) continue;
    std::printf("found by %lu histories\n", seed - a.first + 1);
    return 0;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%lu histories, %lu broken, %.0f a second, hash %016lx\n", a.count, broken,
              static_cast<double>(a.count) / took.count(), hash);
  return broken == 0 && !a.finds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // So addresses, and what depends on them, are the same in each run.
  if (const int now = personality(0xffffffff); (now & ADDR_NO_RANDOMIZE) == 0) {
    personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE);
    execv("/proc/self/exe", argv);
  }
  try {
    const Arguments a = arguments_of(argc, argv);
    if (a.count == 0) {
      std::fprintf(stderr,
                   "usage: simulate [--module FILE] --seeds FIRST COUNT [--finds]\n"
                   "       simulate [--module FILE] --seed N [--story] [--shorten]\n");
      return 2;
    }
    // One place for all threads' memory, taken in large pieces.
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TOP_PAD, 16 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    make_seats();
    setenv("HWLOC_SYNTHETIC", "package:1 l3:1 core:4 pu:1", 1);
    const std::vector<Module> modules = load_modules(a.module);
    if (a.is_one) return one(a, modules);
    return many(a, modules, a.finds ? load_modules(TUTTI_SIMULATED_RANK) : std::vector<Module>());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "simulate: %s\n", e.what());
    return 2;
  }
}
