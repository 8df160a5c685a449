// Ranks on two hosts that the launchers of others start: they meet by the launcher's own store,
// without a file and without a variable. The hosts are network namespaces. What is not installed is
// skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/clean_environment.h"
#include "tests/support/launchers.h"
#include "tests/support/slurm_cluster.h"

namespace tutti {
namespace {

constexpr const char* kRank = "env -u LD_PRELOAD " LAUNCHED_RANK;

class AcrossHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.missing().empty()) GTEST_SKIP() << hosts_.missing();
  }

  static std::string two_worlds() { return fmt::format("{} 2", kRank); }

  /// What four ranks print that make `worlds` communicators.
  static std::vector<std::string> expected(std::string_view launcher, std::string_view way,
                                           int worlds = 2) {
    std::vector<std::string> lines;
    const int sum = 10 * worlds * (worlds + 1) / 2;
    for (int rank = 0; rank < 4; ++rank)
      lines.push_back(fmt::format("{} {} 4: {}; {}", launcher, rank, way, sum));
    return lines;
  }

  /// The lines of ranks among those that launchers print.
  static std::vector<std::string> of_ranks(const Said& said) {
    std::vector<std::string> lines;
    for (const std::string& line : said.lines) {
      if (line.find("; ") != std::string::npos && line.find(" 4: ") != std::string::npos)
        lines.push_back(line);
    }
    return lines;
  }

  static void expect_met(const std::string& command, const std::vector<std::string>& lines) {
    const Said said = run_shell(command);
    EXPECT_EQ(said.status, 0) << command << "\n" << said.all();
    EXPECT_EQ(of_ranks(said), lines) << command << "\n" << said.all();
  }

  /// A program: rank 0, as $variable says, ends at once, and the others wait for two seconds.
  std::string without_rank_zero(const std::string& variable) const {
    hosts_.folder().write("without",
                          fmt::format("#!/bin/sh\n[ ${} = 0 ] || exec {} 1 2\n", variable, kRank));
    return "sh " + hosts_.folder().path("without");
  }
  static void expect_told(const std::string& command, const std::string& how) {
    const Said said = run_shell(command);
    EXPECT_NE(said.status, 0) << said.all();
    EXPECT_NE(said.status, 124) << said.all();  // timeout's
    EXPECT_TRUE(said.has(how)) << how << "\n" << said.all();
    EXPECT_TRUE(said.has("Is rank 0 running")) << said.all();
  }

  const Environment clean_{{}};
  const LaunchHosts hosts_;
};

struct Release {
  const char* name;
  std::vector<std::string> programs;
  const char* version;  // what it says with --version
};

// --- PMIx: Open MPI ---

class OpenMpi : public AcrossHosts, public testing::WithParamInterface<Release> {};

TEST_P(OpenMpi, RanksMeetByPmixOrSayWhatTheyWaitFor) {
  const std::string mpirun = find_launcher_program(GetParam().programs, GetParam().version);
  if (mpirun.empty()) GTEST_SKIP() << "no " << GetParam().name << " (TUTTI_LAUNCHERS)";
  expect_met(hosts_.open_mpi(mpirun, two_worlds()), expected("Open MPI", "PMIx"));
  expect_told(hosts_.open_mpi(mpirun, without_rank_zero("OMPI_COMM_WORLD_RANK")),
              "of 4 did not get rank 0's unique id by PMIx");
}

INSTANTIATE_TEST_SUITE_P(All, OpenMpi,
                         testing::Values(Release{"OpenMpi4", {"mpirun.openmpi", "mpirun"}, ") 4."},
                                         Release{"OpenMpi5", {"mpirun"}, "(Open MPI) 5"}),
                         [](const auto& row) { return std::string(row.param.name); });

// --- PMI-1: hydra ---

class Hydra : public AcrossHosts, public testing::WithParamInterface<Release> {};

TEST_P(Hydra, RanksOfOtherHostsGoOnWhenARankDies) {
  const std::string mpiexec = find_launcher_program(GetParam().programs, GetParam().version);
  if (mpiexec.empty()) GTEST_SKIP() << "no " << GetParam().name << " (TUTTI_LAUNCHERS)";
  const std::string command =
      hosts_.hydra(mpiexec, SURVIVE " 1", "-launcher ssh -iface eth0 -disable-auto-cleanup");
  Said said = run_shell(command);
  // The mpiexec of MPICH 5.0.2 itself ends of SIGPIPE in one of thirty such runs.
  for (int more = 3; more > 0 && said.status == 128 + SIGPIPE; --more) said = run_shell(command);
  // Some launchers end the other ranks of its host even so.
  for (const char* const line : {"rank 2 is ", "rank 3 is "}) {
    EXPECT_TRUE(said.has(line)) << line << "\n" << said.all();
  }
}

TEST_P(Hydra, RanksMeetByPmiOrSayWhatTheyWaitFor) {
  const std::string mpiexec = find_launcher_program(GetParam().programs, GetParam().version);
  if (mpiexec.empty()) GTEST_SKIP() << "no " << GetParam().name << " (TUTTI_LAUNCHERS)";
  expect_met(hosts_.hydra(mpiexec, two_worlds()), expected("MPICH", "PMI"));
  expect_told(hosts_.hydra(mpiexec, without_rank_zero("PMI_RANK")),
              "of 4 did not get rank 0's unique id by PMI");
  if (GetParam().name == std::string_view("IntelMpi")) return;
  // The launcher listens, and each rank connects and asks for its place.
  expect_met(hosts_.hydra(mpiexec, two_worlds(), "-launcher ssh -iface eth0 -pmi-port"),
             expected("MPICH", "PMI"));
}

INSTANTIATE_TEST_SUITE_P(All, Hydra,
                         testing::Values(Release{"Mpich4", {"mpiexec.hydra"}, "4."},
                                         Release{"Mpich5", {"mpiexec.hydra"}, "5."},
                                         Release{"IntelMpi", {"mpiexec.hydra"}, "Intel"}),
                         [](const auto& row) { return std::string(row.param.name); });

// --- MPI in the same process ---

#if defined(OPENMPI_RANK) || defined(MPICH_RANK)
/// Two ranks of one host, whose launcher is said to have started one on each of two.
void expect_beside_mpi(const std::string& launcher, const std::string& local_size,
                       const std::string& program) {
  const Environment clean({});
  for (const char* const when : {"before", "after"}) {
    const Said said = run_shell(
        fmt::format("timeout 60 {} -n 2 env {}=1 {} {}", launcher, local_size, program, when));
    EXPECT_EQ(said.status, 0) << said.all();
    EXPECT_EQ(said.lines, (std::vector<std::string>{"0 7 2", "1 7 2"})) << when << said.all();
  }
}
#endif

TEST(BesideMpi, ProgramsOfOpenMpiMeetByPmix) {
#ifdef OPENMPI_RANK
  const std::string mpirun = find_launcher_program({"mpirun.openmpi"}, ") 4.");
  if (mpirun.empty()) GTEST_SKIP() << "no Open MPI 4";
  const TemporaryFolder folder;
  expect_beside_mpi(fmt::format("{} --allow-run-as-root --oversubscribe --mca orte_tmpdir_base {}",
                                mpirun, folder.path()),
                    "OMPI_COMM_WORLD_LOCAL_SIZE", OPENMPI_RANK);
#else
  GTEST_SKIP() << "no Open MPI to build programs for";
#endif
}

TEST(BesideMpi, ProgramsOfMpichMeetByPmi) {
#ifdef MPICH_RANK
  const std::string mpiexec = find_launcher_program({"mpiexec.hydra"}, "4.");
  if (mpiexec.empty()) GTEST_SKIP() << "no MPICH 4";
  expect_beside_mpi(mpiexec, "MPI_LOCALNRANKS", MPICH_RANK);
#else
  GTEST_SKIP() << "no MPICH to build programs for";
#endif
}

// --- Slurm ---

class Slurm : public AcrossHosts {
 protected:
  void SetUp() override {
    AcrossHosts::SetUp();
    if (IsSkipped()) return;
    cluster_ = std::make_unique<SlurmCluster>(hosts_);
    if (!cluster_->missing().empty()) GTEST_SKIP() << cluster_->missing();
  }
  std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(Slurm, RanksMeetByPmi2AndByPmix) {
  for (const auto& [plugin, launcher, way] :
       {std::array{"pmi2", "MPICH", "PMI"}, std::array{"pmix", "Slurm", "PMIx"}}) {
    if (!run_shell("srun --mpi=list").has(plugin)) continue;
    expect_met(cluster_->srun(plugin, two_worlds()), expected(launcher, way));
    // Two programs of one allocation, at once and one after the other.
    const std::string step = fmt::format("srun --overlap --mpi={} {}", plugin, two_worlds());
    std::vector<std::string> lines;
    for (const std::string& line : expected(launcher, way)) lines.insert(lines.end(), 3, line);
    expect_met(cluster_->salloc(fmt::format("{0} & a=$!; {0} && wait $a && {0}\n", step)), lines);
  }
}

TEST_F(Slurm, WithoutAStoreTheErrorNamesTheWays) {
  const Said said = run_shell(cluster_->srun("none", kRank));
  EXPECT_NE(said.status, 0);
  for (const char* const way : {"SLURM_STEP_NUM_NODES is 2", "srun --mpi=pmix", "srun --mpi=pmi2",
                                "TUTTI_ID_FILE", "TUTTI_UNIQUE_ID"}) {
    EXPECT_TRUE(said.has(way)) << way << "\n" << said.all();
  }
}

// --- torchrun's variables, without torchrun ---

TEST_F(AcrossHosts, RanksWithTorchsVariablesMeetAtRankZero) {
  std::string command;
  for (int rank = 0; rank < 4; ++rank) {
    command += hosts_.on(rank / 2, fmt::format("env RANK={} WORLD_SIZE=4 MASTER_ADDR={} "
                                               "MASTER_PORT=29400 {}",
                                               rank, hosts_.address(0), two_worlds())) +
               " & ";
  }
  auto lines = expected("torchrun", "torchrun's store");
  lines[0] = "torchrun 0 4: rank 0's store; 30";
  expect_met(command + "wait", lines);
}

/// One of them meets whole. The other one may come too late for that, and says so.
TEST_F(AcrossHosts, TwoJobsWithOneMasterPortDoNotMix) {
  std::string command;
  for (int rank = 3; rank >= 0; --rank) {
    for (int job = 1; job <= 2; ++job) {
      command += hosts_.on(rank / 2,
                           fmt::format("env -u LD_PRELOAD TAG={} RANK={} WORLD_SIZE=4 "
                                       "MASTER_ADDR={} MASTER_PORT=29400 " ENVIRONMENT_RANK " 2 5",
                                       job, rank, hosts_.address(0))) +
                 " & ";
    }
  }
  for (int round = 0; round < 4; ++round) {
    const Said said = run_shell(command + "wait");
    EXPECT_FALSE(said.has("card")) << said.all();
    const auto met = std::ranges::count(said.lines, "torchrun 0 4");
    EXPECT_GE(met, 1) << said.all();
    for (int rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(std::ranges::count(said.lines, fmt::format("torchrun {} 4", rank)), met)
          << said.all();
    }
  }
}

// --- torchrun ---

class Torchrun : public AcrossHosts {
 protected:
  void SetUp() override {
    AcrossHosts::SetUp();
    if (std::string_view(TORCHRUN).empty()) GTEST_SKIP() << "no PyTorch (TUTTI_WHEELS)";
  }
  /// An agent finds out whether the place is its own host's by the host's name, which these hosts
  /// have in common.
  std::string endpoint() const {
    return fmt::format("--rdzv-endpoint {}:29400 --rdzv-conf is_host={{2}}", hosts_.address(0));
  }
};

TEST_F(Torchrun, RanksMeetByTheStoreOfItsAgent) {
  // The agents' own rendezvous, which chooses the port, and a given place.
  expect_met(
      hosts_.torchrun(TORCHRUN, "--rdzv-backend c10d --rdzv-id job7 " + endpoint(), two_worlds()),
      expected("torchrun", "torchrun's store"));
}

TEST_F(Torchrun, RanksMeetAtAGivenAddress) {
  expect_met(hosts_.torchrun(TORCHRUN,
                             fmt::format("--node-rank {{0}} --master-addr {} --master-port 29400",
                                         hosts_.address(0)),
                             two_worlds()),
             expected("torchrun", "torchrun's store"));
}

TEST_F(Torchrun, ARankZeroThatEndsAtOnceIsWaitedForUntilTheDeadline) {
  expect_told(
      hosts_.torchrun(TORCHRUN, "--rdzv-backend c10d " + endpoint(), without_rank_zero("RANK")) +
          "; exit 1",
      "of 4 did not get rank 0's unique id by torchrun's store");
}

/// The first attempt of rank 0 leaves its id in the store, which outlives it.
TEST_F(Torchrun, RanksThatItStartsAnewDoNotTakeTheIdOfEarlierOnes) {
  hosts_.folder().write("attempt", fmt::format("#!/bin/sh\n"
                                               "first={0}/$RANK\n"
                                               "[ -e $first ] && exec {1} 2\n"
                                               "touch $first\n"
                                               "[ $RANK = 0 ] && exec {1} 1\n"
                                               "[ $RANK = 3 ] && sleep 2 && exit 7\n"
                                               "sleep 60\n",
                                               hosts_.folder().path(), kRank));
  const Said said =
      run_shell(hosts_.torchrun(TORCHRUN, "--max-restarts 3 --rdzv-backend c10d " + endpoint(),
                                "sh " + hosts_.folder().path("attempt")));
  EXPECT_EQ(of_ranks(said), expected("torchrun", "torchrun's store")) << said.all();
}

}  // namespace
}  // namespace tutti
