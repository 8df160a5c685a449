// Who belongs to a job, where that is not plain: launchers inside each other, wrappers around
// ranks, several programs of one launch, jobs with one MASTER_PORT. Shells play the launchers: they
// set what those set. launchers_test does the same with real ones.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/kinship.h"
#include "bootstrap/launcher.h"
#include "bootstrap/process.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "core/proc.h"
#include "tests/support/clean_environment.h"
#include "tests/support/contains.h"

namespace tutti {
namespace {

struct Said {
  int status = -1;
  std::vector<std::string> lines;  // sorted
  std::string all() const {
    std::string text = fmt::format("status {}\n", status);
    for (const std::string& line : lines) text += line + '\n';
    return text;
  }
};

Said run(const std::string& script) {
  const Environment clean({});
  Said said;
  FILE* const pipe = popen(("(" + script + ") 2>&1").c_str(), "r");
  std::array<char, 4096> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::string text = line.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    said.lines.push_back(text);
  }
  said.status = pclose(pipe);
  std::ranges::sort(said.lines);
  return said;
}

std::vector<std::string> ranks_of(const std::string& launcher, int size, int times = 1) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < size; ++rank)
    lines.insert(lines.end(), static_cast<std::size_t>(times),
                 fmt::format("{} {} {}", launcher, rank, size));
  return lines;
}

/// A launcher, and how it sets the variables of rank {0} of {1}; {2} is a text of each launch.
struct Played {
  const char* name;
  const char* variables;
};
const std::vector<Played> kPlayed{
    {"tutti run", "TUTTI_RANK={0} TUTTI_SIZE={1} TUTTI_UNIQUE_ID={2}"},
    {"torchrun",
     "RANK={0} WORLD_SIZE={1} TORCHELASTIC_RUN_ID=none TORCHELASTIC_ERROR_FILE=/{2}/x/{0}/e "
     "MASTER_ADDR=127.0.0.1 MASTER_PORT=1"},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK={0} OMPI_COMM_WORLD_SIZE={1} OMPI_FILE_LOCATION=/{2} "
     "PMIX_NAMESPACE={2} PMIX_RANK={0}"},
    {"MPICH", "PMI_RANK={0} PMI_SIZE={1}"},
    {"Slurm", "SLURM_PROCID={0} SLURM_NTASKS={1} SLURM_JOB_ID=7 SLURM_STEP_ID={2}"},
};

std::string variables_of(const Played& launcher, const std::string& rank, int size,
                         const std::string& launch) {
  return fmt::format(fmt::runtime(launcher.variables), rank, size, launch);
}

/// A name that no other launch has.
std::string fresh_launch() {
  static int launches = 0;
  return fmt::format("test{}-{}-", getpid(), ++launches);
}

/// A shell that starts two ranks of `program`, as `launcher` does.
std::string two_ranks(const Played& launcher, const std::string& launch,
                      const std::string& program) {
  return fmt::format("sh -c 'for r in 0 1; do {} {} & done; wait'",
                     variables_of(launcher, "$r", 2, launch), program);
}

// --- launchers inside each other ---

TEST(NestedLaunchers, TheInnermostCounts) {
  for (const Played& outer : kPlayed) {
    for (const Played& inner : kPlayed) {
      if (&inner == &outer) continue;
      // With the rank of one of the inner ones, and with another.
      for (const auto& [rank, size] : {std::pair{"0", 1}, std::pair{"1", 2}, std::pair{"2", 3}}) {
        const std::string id = to_string(make_unique_id()), other = to_string(make_unique_id());
        const Said said = run(fmt::format("env {} {}", variables_of(outer, rank, size, other),
                                          two_ranks(inner, id, ENVIRONMENT_RANK)));
        EXPECT_EQ(said.lines, ranks_of(inner.name, 2))
            << inner.name << " in " << outer.name << ' ' << rank << said.all();
      }
    }
  }
}

TEST(NestedLaunchers, TwoOfOneKindInAnotherOneAreTwoJobs) {
  for (const Played& inner : kPlayed) {
    if (inner.name == kPlayed[0].name) continue;
    const std::string outer = variables_of(kPlayed[0], "$o", 2, to_string(make_unique_id()));
    const Said said =
        run(fmt::format("for o in 0 1; do export o; env {} TAG=$o {} & done; wait", outer,
                        two_ranks(inner, fresh_launch() + "$o", ENVIRONMENT_RANK)));
    EXPECT_EQ(said.lines, ranks_of(inner.name, 2, 2)) << inner.name << said.all();
  }
}

TEST(NestedLaunchers, WhereNothingShowsTheInnerOneTheErrorNamesBoth) {
  const Environment both({{"TUTTI_RANK", "0"},
                          {"TUTTI_SIZE", "1"},
                          {"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"}});
  try {
    placement_from_environment();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(error.what(),
                    "tutti run (TUTTI_RANK is 0, TUTTI_SIZE is 1) and Open MPI "
                    "(OMPI_COMM_WORLD_RANK is 1, OMPI_COMM_WORLD_SIZE is 2)");
    EXPECT_CONTAINS(error.what(), "`env -u TUTTI_RANK -u TUTTI_SIZE PROGRAM`");
  }
}

// --- wrappers ---

TEST(Wrappers, DoNotHideTheLauncher) {
  for (const std::string wrapper :
       {"sh -c \"" ENVIRONMENT_RANK " 2; true\"",
        "sh -c \"sh -c \\\"" ENVIRONMENT_RANK " 2; true\\\"; true\"",
        "python3 -c \"import subprocess; subprocess.call([\\\"" ENVIRONMENT_RANK "\\\"])\""}) {
    const Said said = run(two_ranks(kPlayed[3], "", wrapper));
    EXPECT_EQ(said.lines, ranks_of("MPICH", 2)) << wrapper << said.all();
  }
}

// --- several programs at once ---

/// Two ranks, each of which starts two programs at once.
void expect_two_programs(const Played& launcher, const std::string& first,
                         const std::string& second) {
  const std::string command =
      two_ranks(launcher, fresh_launch(), fmt::format("sh -c \"{} & {} & wait\"", first, second));
  for (int round = 0; round < 4; ++round) {
    const Said said = run(command);
    ASSERT_EQ(said.lines, ranks_of(launcher.name, 2, 2)) << command << said.all();
  }
}

TEST(ProgramsAtOnce, AreToldApartByTheirArguments) {
  for (const Played& launcher : {kPlayed[2], kPlayed[3], kPlayed[4]})
    expect_two_programs(launcher, ENVIRONMENT_RANK " 2 20 1", ENVIRONMENT_RANK " 2 20 2");
}

TEST(ProgramsAtOnce, AreToldApartByTheirEnvironment) {
  expect_two_programs(kPlayed[3], "TAG=1 " ENVIRONMENT_RANK " 2", "TAG=2 " ENVIRONMENT_RANK " 2");
}

TEST(ProgramsAtOnce, MayHaveArgumentsOfEachRank) {
  expect_two_programs(kPlayed[3], ENVIRONMENT_RANK " 1 20 1 r\\$PMI_RANK",
                      ENVIRONMENT_RANK " 1 20 2 r\\$PMI_RANK");
}

/// Ranks may be different programs, and have others beside them.
TEST(ProgramsAtOnce, OneProgramMayDifferFromRankToRank) {
  const Said said =
      run(two_ranks(kPlayed[3], "",
                    "sh -c \"sleep 3 & if [ \\$PMI_RANK = 0 ]; then " ENVIRONMENT_RANK
                    " 2; else env OTHER=1 " ENVIRONMENT_RANK " 2 25; fi; kill \\$!\""));
  EXPECT_EQ(said.lines, ranks_of("MPICH", 2)) << said.all();
}

// --- one MASTER_ADDR and MASTER_PORT ---

std::string plain(const std::string& rank, int size, const std::string& program) {
  return fmt::format("RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} {}", rank, size,
                     20000 + getpid() % 10000, program);
}

TEST(OneMasterPort, TwoJobsAtOnceDoNotMix) {
  const std::string job = "for r in 2 0 1; do " + plain("$r", 3, ENVIRONMENT_RANK " 2") + " & done";
  for (int round = 0; round < 4; ++round) {
    // Of one shell, and of two.
    for (const std::string& both : {fmt::format("export TAG=1; {0}; export TAG=2; {0}; wait", job),
                                    fmt::format("(TAG=1; export TAG; {0}; wait) & (TAG=2; "
                                                "export TAG; {0}; wait) & wait",
                                                job)}) {
      const Said said = run(both);
      ASSERT_EQ(said.lines, ranks_of("torchrun", 3, 2)) << both << said.all();
    }
  }
}

TEST(OneMasterPort, JobsOfOtherSizesDoNotMix) {
  const auto job = [](int size) {
    std::string all;
    for (int rank = size - 1; rank >= 0; --rank)
      all += plain(std::to_string(rank), size, ENVIRONMENT_RANK) + " & ";
    return all;
  };
  auto expected = ranks_of("torchrun", 2);
  for (const std::string& line : ranks_of("torchrun", 3)) expected.push_back(line);
  std::ranges::sort(expected);
  for (int round = 0; round < 5; ++round) {
    const Said said = run(job(2) + job(3) + "wait");
    ASSERT_EQ(said.lines, expected) << said.all();
  }
}

// --- what tells programs apart ---

TEST(Kinship, AProgramTravels) {
  const Program own = program_of(getpid());
  EXPECT_FALSE(own.words.empty());
  EXPECT_FALSE(own.variables.empty());
  const std::string text = to_text(own);
  EXPECT_LE(text.size(), 2600U);
  const std::string shorter = to_text(own, Detail::without_variables);
  EXPECT_LE(shorter.size(), 300U);
  EXPECT_EQ(program_from_text(shorter).words, own.words);
  EXPECT_TRUE(program_from_text(shorter).variables.empty());
  const Program same = program_from_text(text);
  EXPECT_EQ(same.file, own.file);
  EXPECT_EQ(same.words, own.words);
  EXPECT_TRUE(std::ranges::includes(own.variables, same.variables));
  EXPECT_EQ(to_text(same), text);
}

TEST(Kinship, ATextThatIsNoProgramIsRefused) {
  for (const char* const text : {"", "00000001", "0000000100000001", "00000001ffffffff00000001",
                                 "0000000g00000000", "00000001000000000", "-0000001 0000000"}) {
    EXPECT_THROW(program_from_text(text), Error) << text;
  }
}

TEST(Kinship, WhatIsMoreImportantComesFirst) {
  const Program zero{1, {1, 2, 3}, {1, 2, 3}, {30, 20, 10}};
  const auto with = [&](const auto& change) {
    Program other = zero;
    change(other);
    return likeness(zero, other);
  };
  const Likeness same = with([](Program&) {});
  const Likeness variable = with([](Program& p) { p.variables.insert(9); });
  const Likeness word = with([](Program& p) { p.words[2] = 9; });
  const Likeness more = with([](Program& p) { p.words.insert(p.words.end(), {4, 5}); });
  const Likeness file = with([](Program& p) { p.file = 2; });
  const Likeness parent = with([](Program& p) { p.above = {31, 20, 10}; });
  EXPECT_GT(same, variable);
  EXPECT_GT(variable, word);
  EXPECT_GT(word, more);
  EXPECT_GT(more, file);
  EXPECT_GT(file, parent);
}

TEST(Process, KnowsItsAncestorsAndWhatItIs) {
  const auto above = ancestors_of(getpid());
  ASSERT_FALSE(above.empty());
  EXPECT_EQ(above.front(), getppid());
  EXPECT_TRUE(ancestors_of(1).empty());
  EXPECT_CONTAINS(command_of(getpid()).front(), "bootstrap_tests");
  const auto seen = process_ids();
  EXPECT_TRUE(std::ranges::find(seen, getpid()) != seen.end());
  EXPECT_TRUE(environment_of(0).empty());
  EXPECT_TRUE(command_of(-1).empty());
}

}  // namespace
}  // namespace tutti
