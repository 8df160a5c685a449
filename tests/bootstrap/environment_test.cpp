// Which rank a process is, by the variables of each launcher, and where the id comes from.
#include "bootstrap/environment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/clean_environment.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

struct Row {
  Variables variables;
  std::string launcher;
  int rank;
  int size;
};

TEST(Placement, IsReadFromEveryLauncher) {
  const std::vector<Row> rows{
      {{}, "none", 0, 1},
      {{{"TUTTI_RANK", "2"}, {"TUTTI_SIZE", "4"}}, "tutti run", 2, 4},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}, "torchrun", 1, 2},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun", 1, 2},
      {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}}, "Open MPI", 3, 5},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "MPICH", 0, 1},
      {{{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_STEP_ID", "0"}}, "Slurm", 6, 7},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "7"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm",
       1,
       2},
      // A batch script, which srun did not start.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "7"}, {"SLURM_JOB_ID", "9"}}, "none", 0, 1},
      // Launchers that call each other give one place.
      {{{"PMI_RANK", "1"},
        {"PMI_SIZE", "4"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "0"}},
       "MPICH",
       1,
       4},
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "5"},
        {"PMIX_NAMESPACE", "space"},
        {"PMIX_RANK", "3"}},
       "Open MPI",
       3,
       5},
      // A job step without PMIx has the variables of the one around it.
      {{{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "1"},
        {"PMIX_NAMESPACE", "slurm.pmix.7.0"},
        {"PMIX_RANK", "0"}},
       "Slurm",
       1,
       4},
      // What `tutti run` sets for programs that were made for torchrun.
      {{{"TUTTI_RANK", "1"}, {"TUTTI_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
       "tutti run",
       1,
       2},
      // The same said twice is no contradiction; names that mean something else are left alone.
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "5"},
        {"RANK", "3"},
        {"WORLD_SIZE", "5"}},
       "Open MPI",
       3,
       5},
      {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"RANK", "captain"}},
       "Open MPI",
       3,
       5},
      {{{"TUTTI_RANK", ""}, {"TUTTI_SIZE", ""}}, "none", 0, 1},
  };
  for (const Row& row : rows) {
    const Environment environment(row.variables);
    const Placement placement = placement_from_environment();
    EXPECT_EQ(placement.launcher, row.launcher);
    EXPECT_EQ(placement.rank, row.rank) << row.launcher;
    EXPECT_EQ(placement.size, row.size) << row.launcher;
  }
}

TEST(Placement, ContradictionsNameTheVariableAndItsValue) {
  struct Wrong {
    Variables variables;
    std::vector<std::string> message;
  };
  const std::vector<Wrong> rows{
      {{{"TUTTI_RANK", "2"}}, {"TUTTI_RANK is 2", "TUTTI_SIZE is not set"}},
      {{{"TUTTI_SIZE", "2"}}, {"TUTTI_SIZE is 2", "TUTTI_RANK is not set"}},
      {{{"RANK", "1"}}, {"RANK is 1", "WORLD_SIZE is not set"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not set"}},
      {{{"PMI_SIZE", "3"}}, {"PMI_RANK is not set"}},
      {{{"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "1"}}, {"SLURM_NTASKS is not set"}},
      {{{"TUTTI_RANK", "4"}, {"TUTTI_SIZE", "4"}}, {"TUTTI_RANK is 4 and TUTTI_SIZE is 4"}},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, {"RANK is -1"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}, {"PMI_SIZE is 0"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2000000000"}}, {"PMI_SIZE is 2000000000"}},
      {{{"TUTTI_RANK", "two"}, {"TUTTI_SIZE", "4"}}, {"TUTTI_RANK is 'two'"}},
      {{{"RANK", "1x"}, {"WORLD_SIZE", "4"}}, {"RANK is '1x'"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "99999999999"}}, {"WORLD_SIZE is '99999999999'"}},
      {{{"RANK", " 1"}, {"WORLD_SIZE", "4"}}, {"RANK is ' 1'"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "1"},
        {"RANK", "2"},
        {"WORLD_SIZE", "4"}},
       {"RANK is 2 and WORLD_SIZE is 4", "OMPI_COMM_WORLD_RANK is 0"}},
      {{{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "1"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}},
       {"RANK is 2 and WORLD_SIZE is 4", "TUTTI_RANK is 0"}},
      {{{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       {"tutti run (TUTTI_RANK is 0, TUTTI_SIZE is 1) and MPICH (PMI_RANK is 0, PMI_SIZE is 2)"}},
  };
  for (const Wrong& row : rows) {
    const Environment environment(row.variables);
    try {
      placement_from_environment();
      ADD_FAILURE() << row.message.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
      for (const std::string& part : row.message) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
}

TEST(IdFromEnvironment, TheVariableWinsUnderEveryLauncher) {
  const UniqueId id = make_unique_id();
  const std::vector<Variables> launchers{
      {{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}},
      {{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
  };
  for (Variables variables : launchers) {
    variables["TUTTI_UNIQUE_ID"] = to_string(id);
    const Environment environment(variables);
    EXPECT_EQ(unique_id_from_environment(placement_from_environment(), 1s).id, id);
  }
}

std::string id_error(const Variables& variables, std::chrono::nanoseconds timeout = 300ms) {
  const Environment environment(variables);
  try {
    unique_id_from_environment(placement_from_environment(), timeout);
  } catch (const Error& error) {
    return fmt::format("{}: {}", name(error.code()), error.what());
  }
  return "";
}

TEST(IdFromEnvironment, ErrorsSayWhatToDo) {
  EXPECT_CONTAINS(id_error({{"TUTTI_UNIQUE_ID", "abc"}}),
                  "invalid_usage: TUTTI_UNIQUE_ID: a unique id is 256 hexadecimal digits");
  EXPECT_CONTAINS(id_error({{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}}),
                  "TUTTI_UNIQUE_ID, which would tell this job from others, is not: set it");
  EXPECT_CONTAINS(id_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
                  "MASTER_PORT");
  EXPECT_CONTAINS(id_error({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
                  "SLURM_JOB_ID");
}

TEST(IdFromEnvironment, SeveralHostsAreRefused) {
  const std::vector<std::pair<Variables, std::string>> rows{
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_SIZE is 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "3"}}, "LOCAL_WORLD_SIZE is 3"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "1"}}, "MPI_LOCALNRANKS is 1"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_JOB_ID", "8"},
        {"SLURM_NNODES", "2"}},
       "SLURM_NNODES is 2"},
  };
  for (const auto& [variables, evidence] : rows) {
    const std::string error = id_error(variables);
    EXPECT_CONTAINS(error, evidence);
    EXPECT_CONTAINS(error, "several hosts");
    for (const char* const way :
         {"PMIx", "PMI,", "torchrun's store", "TUTTI_ID_FILE",
          "make_unique_id(MeetingPlace::among_hosts())", "Communicator::create()",
          "TUTTI_UNIQUE_ID", "init_process_group"}) {
      EXPECT_CONTAINS(error, way);
    }
  }
}

/// Variables set by hand, as a Kubernetes operator does it. 192.0.2.77 is nobody's.
TEST(IdFromEnvironment, RanksOnOtherHostsThanMasterAddrAskThere) {
  const std::string error = id_error(
      {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "1"}});
  EXPECT_CONTAINS(error, "timed_out: rank 1 of 4 did not get rank 0's unique id by");
  EXPECT_CONTAINS(error, "192.0.2.77:1 was not reached in time");
}

TEST(IdFromEnvironment, NoFileIsLeftOfAnyWorld) {
  const TemporaryFolder folder;
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "0"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"TUTTI_ID_FILE", folder.path("id")}});
  for (int world = 0; world < 2; ++world) {
    const SharedId id = unique_id_from_environment(placement_from_environment(), 1s);
    EXPECT_TRUE(std::filesystem::exists(id.file)) << id.file;
    forget(id);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(IdFromEnvironment, OneRankNeedsNobody) {
  const Environment environment({});
  EXPECT_NE(unique_id_from_environment(placement_from_environment(), 1s).id,
            unique_id_from_environment(placement_from_environment(), 1s).id);
}

}  // namespace
}  // namespace tutti
