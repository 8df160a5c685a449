// examples/small beside the library: the same plans, letter by letter; the same verdicts on plans
// that are spoilt; the same bits; and an end with an error, in time, where a rank dies.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "collectives/verify.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "examples/small/ring.h"
#include "examples/small/run.h"
#include "examples/small/text.h"
#include "examples/small/verify.h"

namespace {

constexpr small::Collective kAll[] = {small::Collective::all_reduce, small::Collective::all_gather,
                                      small::Collective::reduce_scatter};

tutti::Collective in_library(small::Collective c) {
  return c == small::Collective::all_reduce   ? tutti::Collective::all_reduce
         : c == small::Collective::all_gather ? tutti::Collective::all_gather
                                              : tutti::Collective::reduce_scatter;
}

/// A folder of this test's own, which goes with the object.
struct Folder {
  std::string name = std::filesystem::temp_directory_path() / "small_test.XXXXXX";
  Folder() {
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
  }
  ~Folder() { std::filesystem::remove_all(name); }
  bool is_empty() const { return std::filesystem::is_empty(name); }
};

TEST(Small, MakesThePlansOfTheLibrary) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (small::Collective c : kAll) {
      tutti::PlanRequest request;
      request.collective = in_library(c);
      request.ranks = ranks;
      const tutti::Algorithm* ring = tutti::find_algorithm(request.collective, "ring");
      ASSERT_NE(ring, nullptr);
      const small::Plan plan = small::ring(c, ranks);
      const std::string text = small::to_text(plan);
      EXPECT_EQ(text, tutti::to_text(tutti::generate_plan(*ring, request)));
      EXPECT_EQ(small::plan_from_text(text), plan);
      EXPECT_NO_THROW(small::verify(plan));
    }
  }
}

/// Every plan that differs from `plan` in one place.
std::vector<small::Plan> mutants(const small::Plan& plan) {
  std::vector<small::Plan> result;
  const auto add = [&](const std::function<void(small::Plan&)>& spoil) {
    result.push_back(plan);
    spoil(result.back());
    if (result.back() == plan) result.pop_back();
  };
  if (plan.slots > 1) add([](small::Plan& p) { --p.slots; });
  for (std::size_t r = 0; r < plan.steps.size(); ++r) {
    for (std::size_t s = 0; s < plan.steps[r].size(); ++s) {
      const auto at = static_cast<std::ptrdiff_t>(s);
      add([&](small::Plan& p) { p.steps[r].erase(p.steps[r].begin() + at); });
      add([&](small::Plan& p) { p.steps[r].insert(p.steps[r].begin() + at, p.steps[r][s]); });
      add([&](small::Plan& p) { p.steps[r][s].completes ^= true; });
      if (s > 0) add([&](small::Plan& p) { std::swap(p.steps[r][s], p.steps[r][s - 1]); });
      for (auto side : {&small::Step::destinations, &small::Step::sources}) {
        const std::size_t operands = (plan.steps[r][s].*side).size();
        if (operands > 1) {
          add([&](small::Plan& p) {
            std::swap((p.steps[r][s].*side)[0], (p.steps[r][s].*side)[1]);
          });
        }
        for (std::size_t o = 0; o < operands; ++o) {
          const auto operand = [&](small::Plan& p) -> small::Operand& {
            return (p.steps[r][s].*side)[o];
          };
          if (operands > 1) {
            add([&](small::Plan& p) {
              auto& all = p.steps[r][s].*side;
              all.erase(all.begin() + static_cast<std::ptrdiff_t>(o));
            });
          }
          const small::Operand& old = (plan.steps[r][s].*side)[o];
          for (int other = 0; other <= plan.ranks(); ++other) {  // the last one does not exist
            add([&](small::Plan& p) {
              (old.is_link() ? operand(p).peer : reinterpret_cast<int&>(operand(p).chunk)) = other;
            });
          }
          if (!old.is_link()) {
            add([&](small::Plan& p) {
              operand(p).space =
                  old.space == small::Space::in ? small::Space::out : small::Space::in;
            });
          }
        }
      }
    }
  }
  return result;
}

/// The library's verdict on the text of `plan` for plain sums, which do not scale inputs; "":
/// proved.
std::string verdict_of_library(const small::Plan& plan) {
  try {
    const tutti::Verdict verdict =
        tutti::verify(tutti::plan_from_text(small::to_text(plan)), {.scales = false});
    return verdict.proved ? "" : verdict.story;
  } catch (const tutti::Error& error) {
    return error.what();
  }
}

TEST(Small, RefutesSpoiltPlansAsTheLibraryDoes) {
  int refuted = 0, proved = 0;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (small::Collective c : kAll) {
      for (const small::Plan& plan : mutants(small::ring(c, ranks))) {
        std::string story;
        try {
          small::verify(plan);
        } catch (const small::Refuted& error) {
          story = error.what();
        }
        EXPECT_EQ(story.empty(), verdict_of_library(plan).empty())
            << "here: " << story << "\nlibrary: " << verdict_of_library(plan) << "\n"
            << small::to_text(plan);
        ++(story.empty() ? proved : refuted);
      }
    }
  }
  EXPECT_GT(refuted, 3000);
  // Those that are as good: with destinations or sources in another order, above all.
  EXPECT_LT(proved, refuted / 10);
  std::printf("%d spoilt plans refuted, %d as good as the original\n", refuted, proved);
}

TEST(Small, ADeadlockSaysWhoWaitsForWhom) {
  small::Plan plan = small::ring(small::Collective::all_reduce, 3);
  plan.slots = 1;
  try {
    small::verify(plan);
    FAIL();
  } catch (const small::Refuted& error) {
    EXPECT_STREQ(error.what(),
                 "a deadlock, in every timing:\n"
                 "  rank 0 waits in step 'to(1) <- from(2) + in[1]' for a free slot to rank 1\n"
                 "  rank 1 waits in step 'to(2) <- from(0) + in[2]' for a free slot to rank 2\n"
                 "  rank 2 waits in step 'to(0) <- from(1) + in[0]' for a free slot to rank 0");
  }
}

/// Each rank sends its input to all others, and adds up what it gets: its own first if `own_first`,
/// else in the order of the ranks, which is the same on all.
small::Plan everyone_adds_up(int ranks, bool own_first) {
  small::Plan plan;
  plan.algorithm = "one_shot";
  for (int rank = 0; rank < ranks; ++rank) {
    small::Step send{{}, {small::in(0)}}, add{{small::out(0)}, {}, true};
    if (own_first) add.sources.push_back(small::in(0));
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank) {
        send.destinations.push_back(small::to(peer));
        add.sources.push_back(small::from(peer));
      } else if (!own_first) {
        add.sources.push_back(small::in(0));
      }
    }
    plan.steps.push_back({send, add});
  }
  return plan;
}

TEST(Small, RefutesSumsThatMayRoundDifferently) {
  const small::Plan same = everyone_adds_up(3, false), differs = everyone_adds_up(3, true);
  EXPECT_NO_THROW(small::verify(same));
  EXPECT_EQ(verdict_of_library(same), "");
  EXPECT_NE(verdict_of_library(differs), "");
  try {
    small::verify(differs);
    FAIL();
  } catch (const small::Refuted& error) {
    EXPECT_STREQ(error.what(),
                 "out[0] of rank 1 is (in[0]@1 + in[0]@0 + in[0]@2), and on another rank "
                 "(in[0]@0 + in[0]@1 + in[0]@2): they may round differently");
  }
}

TEST(Small, ATextThatIsNoPlanSaysWhere) {
  const std::string text = small::to_text(small::ring(small::Collective::all_reduce, 2));
  const auto refusal = [](const std::string& wrong) -> std::string {
    try {
      small::plan_from_text(wrong);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(""), "line 0 of the plan: it ends too early");
  std::string wrong = text;
  wrong.replace(wrong.find("to(1)"), 5, "to(x)");
  EXPECT_EQ(refusal(wrong), "line 5 of the plan: expected a number up to 64, not 'x'");
  wrong = text;
  wrong.replace(wrong.find("ranks 2"), 7, "ranks 9999999999");
  EXPECT_EQ(refusal(wrong), "line 2 of the plan: expected a number up to 64, not '9999999999'");
  // A text that ends anywhere is refused, or says another plan, but is never read past its end.
  for (std::size_t length = 0; length < text.size(); ++length) refusal(text.substr(0, length));
}

/// Numbers whose sum depends on the order of the summands, where T rounds.
template <typename T>
T element(int rank, std::size_t i) {
  std::uint64_t x =
      static_cast<std::uint64_t>(rank + 1) * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9;
  x ^= x >> 31;
  x *= 0x94d049bb133111eb;
  x ^= x >> 29;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return static_cast<T>(std::ldexp(static_cast<double>(x >> 11), -60 + static_cast<int>(x % 16)));
  }
}

/// Runs `body(rank)` on a thread for each rank, and passes on what it throws.
void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

template <typename T>
void compare(std::vector<tutti::Communicator>& communicators, small::Type type,
             std::size_t slot_bytes) {
  const int ranks = static_cast<int>(communicators.size());
  const Folder folder;
  on_threads(ranks, [&](int rank) {
    auto& comm = communicators[static_cast<std::size_t>(rank)];
    small::Job job(folder.name + "/meeting", rank, ranks, std::chrono::seconds(30), slot_bytes);
    for (small::Collective c : kAll) {
      const small::Proved plan = small::verify(small::ring(c, ranks));
      for (std::size_t count : {0, 1, 17, 1000, 4099}) {
        std::vector<T> in(count * small::in_blocks(c, ranks));
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = element<T>(rank, i);
        const std::size_t size = count * small::out_blocks(c, ranks);
        std::vector<T> here(size, T{1}), there(size, T{2});
        small::run(job, plan, {type, count, in.data(), here.data()});
        const auto data_type = tutti::DataTypeOf<T>::value;
        switch (c) {
          case small::Collective::all_reduce:
            comm.all_reduce(in.data(), there.data(), count, data_type);
            break;
          case small::Collective::all_gather:
            comm.all_gather(in.data(), there.data(), count, data_type);
            break;
          case small::Collective::reduce_scatter:
            comm.reduce_scatter(in.data(), there.data(), count, data_type);
            break;
        }
        if (size != 0 && std::memcmp(here.data(), there.data(), size * sizeof(T)) != 0) {
          throw std::runtime_error(fmt::format("{} of {} elements on rank {} of {}: other bits",
                                               small::name(c), count, rank, ranks));
        }
      }
    }
  });
  EXPECT_TRUE(folder.is_empty());
}

TEST(Small, GivesTheBitsOfTheLibrarysRing) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    SCOPED_TRACE(ranks);
    tutti::Options options;
    options.algorithm = "ring";
    options.slot_bytes =
        1024;  // so that calls of both are cut into the same tiles, several of them
    auto communicators = tutti::Communicator::create_local(ranks, options);
    compare<float>(communicators, small::Type::float32, options.slot_bytes);
    compare<double>(communicators, small::Type::float64, options.slot_bytes);
    compare<std::int32_t>(communicators, small::Type::int32, options.slot_bytes);
    compare<std::int64_t>(communicators, small::Type::int64, options.slot_bytes);
  }
}

TEST(Small, CallsThatDoNotMatchAreAnError) {
  const Folder folder;
  on_threads(2, [&](int rank) {
    small::Job job(folder.name + "/meeting", rank, 2, std::chrono::seconds(30));
    const small::Proved plan = small::verify(small::ring(small::Collective::all_reduce, 2));
    std::vector<double> in(1000), out(1000);
    try {
      small::run(job, plan,
                 {small::Type::float64, rank == 0 ? 1000U : 500U, in.data(), out.data()});
      ADD_FAILURE() << "rank " << rank;
    } catch (const small::Error& error) {
      EXPECT_NE(std::string(error.what()).find("make different calls"), std::string::npos)
          << error.what();
    }
  });
}

TEST(Small, ARankThatNeverComesIsNamed) {
  const Folder folder;
  const auto begin = std::chrono::steady_clock::now();
  on_threads(2, [&](int rank) {
    try {
      small::Job job(folder.name + "/meeting", rank, 3, std::chrono::milliseconds(300));
      if (rank == 0) ADD_FAILURE() << "there are three ranks now";
    } catch (const small::Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 0 waited 300 ms for rank 2 to come"),
                std::string::npos)
          << error.what();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(folder.is_empty());
}

/// What a shell prints, and how it ends.
struct Output {
  std::string text;
  int status = -1;
};
Output shell(const std::string& command) {
  Output output;
  FILE* pipe = ::popen(("exec 2>&1; " + command).c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.text.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return output;
}

std::size_t times(const std::string& text, const std::string& wanted) {
  std::size_t count = 0;
  for (auto at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1))
    ++count;
  return count;
}

TEST(Small, RanksAreProcessesOfTuttiRun) {
  for (int ranks : {1, 2, 5, 8}) {
    const Output output = shell(fmt::format("{} run -n {} {} run", TUTTI_COMMAND, ranks, SMALL));
    EXPECT_EQ(output.status, 0) << output.text;
    EXPECT_EQ(times(output.text, "is right\n"), 6U * static_cast<unsigned>(ranks)) << output.text;
  }
}

/// Files of this user's "small" jobs, whatever their folder; a memfd has no name there.
std::vector<std::string> names_in_shared_memory() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("small") != std::string::npos) {
      names.push_back(entry.path());
    }
  }
  return names;
}

TEST(Small, ADeadRankIsAnErrorInTimeAndLeavesNothing) {
  for (int victim : {0, 2}) {
    const Folder folder;
    const auto before = names_in_shared_memory();
    std::string command;
    for (int rank = 0; rank < 4; ++rank) {
      command += fmt::format("{} run {} 4 {}/meeting --kill {} --timeout 500 & ", SMALL, rank,
                             folder.name, victim);
    }
    const auto begin = std::chrono::steady_clock::now();
    const Output output = shell(command + "wait");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_EQ(times(output.text, "all_reduce of 5 floats is right"), 4U) << output.text;
    EXPECT_EQ(times(output.text, "small: rank "), 3U) << output.text;
    // Each names the dead rank, whomever it has waited for itself.
    EXPECT_GE(times(output.text, fmt::format("for rank {}", victim)), 3U) << output.text;
    EXPECT_TRUE(folder.is_empty());
    EXPECT_EQ(names_in_shared_memory(), before);
  }
}

}  // namespace
