// The id's way from rank 0 to ranks on other hosts, through a file: a rank takes the id of its own
// launch, whatever earlier ones have left there.
#include "bootstrap/id_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "bootstrap/environment.h"
#include "bootstrap/process.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "tests/support/clean_environment.h"
#include "tests/support/temporary_folder.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Launch launch_now() { return {"", false, process_start()}; }
Launch launch_before() { return {"", false, process_start() - 60s}; }

std::future<UniqueId> read_later(const std::string& path, const Launch& launch) {
  return std::async(std::launch::async, [=] { return read_id_file(path, 1, launch, 8s); });
}

TEST(ProcessStart, IsWhenThisProcessStarted) {
  const auto age = std::chrono::system_clock::now() - process_start();
  EXPECT_GE(age, 0s);
  EXPECT_LT(age, 300s);
  std::this_thread::sleep_for(50ms);
  EXPECT_GT(std::chrono::system_clock::now() - process_start(), age + 20ms);
}

/// What `stale` names has the port of another server: the rank waits for the next id.
void expect_not_taken(const UniqueId& stale) {
  const TemporaryFolder folder;
  const std::string path = folder.path("id");
  write_id_file(path, stale, launch_now());
  auto read = read_later(path, launch_now());
  std::this_thread::sleep_for(200ms);
  const UniqueId id = make_unique_id();
  write_id_file(path, id, launch_now());
  EXPECT_EQ(read.get(), id);
}

TEST(IdFile, AnIdWhosePortASilentServerHasIsNotTaken) {
  const FileDescriptor other = listen_at(*parse_address("127.0.0.1", 0));
  expect_not_taken(protocol::encode({bound_address(other), {}}));
}

TEST(IdFile, AnIdWhosePortAWebServerHasIsNotTaken) {
  const FileDescriptor other = listen_at(*parse_address("127.0.0.1", 0));
  std::jthread server([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const FileDescriptor peer = accept_from(other);
      std::array<std::byte, 64> answer{};
      if (peer) write_exactly(peer, answer, Clock::now() + 1s);
      std::this_thread::sleep_for(1ms);
    }
  });
  expect_not_taken(protocol::encode({bound_address(other), {}}));
}

TEST(IdFile, AnIdWhosePortAnotherRendezvousHasIsNotTaken) {
  protocol::Ticket ticket = protocol::decode(make_unique_id());
  ticket.secret[0] ^= std::byte{1};
  expect_not_taken(protocol::encode(ticket));
}

TEST(IdFile, TheIdOfAnEarlierLaunchThatStillWaitsIsNotTaken) {
  const TemporaryFolder folder;
  const std::string path = folder.path("id");
  write_id_file(path, make_unique_id(), launch_before());
  auto read = read_later(path, launch_now());
  std::this_thread::sleep_for(300ms);
  const UniqueId own = make_unique_id();
  write_id_file(path, own, launch_now());
  EXPECT_EQ(read.get(), own);
}

TEST(IdFile, ARankZeroThatStartedLongBeforeIsTakenWhenNoOtherComes) {
  const TemporaryFolder folder;
  const std::string path = folder.path("id");
  const UniqueId id = make_unique_id();
  write_id_file(path, id, launch_before());
  const auto begun = Clock::now();
  EXPECT_EQ(read_id_file(path, 1, launch_now(), 1s), id);
  EXPECT_GE(Clock::now() - begun, 500ms);
  // A name that no other launch has says enough.
  const auto again = Clock::now();
  EXPECT_EQ(read_id_file(path, 1, {"job", true, process_start()}, 2s), id);
  EXPECT_LT(Clock::now() - again, 900ms);
}

TEST(IdFile, AnErrorSaysWhoHasWrittenWhatWasNotTaken) {
  const TemporaryFolder folder;
  const std::string path = folder.path("id");
  FileDescriptor gone = listen_at(*parse_address("127.0.0.1", 0));
  const UniqueId stale = protocol::encode({bound_address(gone), {}});
  gone.reset();
  write_id_file(path, stale, launch_now());
  try {
    read_id_file(path, 3, launch_now(), 100ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    for (const std::string& part : {std::string("rank 3"), path, std::string("is not reached"),
                                    fmt::format("(pid {} on ", getpid())}) {
      EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
}

TEST(IdFile, IsItsUsersAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.path("id"), link = folder.path("link");
  const UniqueId id = make_unique_id();
  const mode_t before = ::umask(0);
  write_id_file(path, id, launch_now());
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(read_id_file(path, 1, launch_now(), 2s), id);
  const auto expect_refused = [&](const std::string& how) {
    try {
      read_id_file(path, 1, launch_now(), 100ms);
      ADD_FAILURE() << how;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::system) << how;
      EXPECT_NE(std::string(error.what()).find("cannot be trusted"), std::string::npos)
          << error.what();
    }
  };
  for (const mode_t mode : {0644, 0660, 0602}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    expect_refused(fmt::format("mode {:o}", mode));
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  // A link may lead to what somebody else chooses.
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_THROW(read_id_file(link, 1, launch_now(), 100ms), Error);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  expect_refused("of another user");
}

/// Where rank 0 of such a job leaves its id; without the number of the communicator.
std::string file_of(Variables variables) {
  const TemporaryFolder folder;
  variables["TUTTI_ID_FILE"] = folder.path("id");
  const Environment environment(variables);
  const SharedId id = unique_id_from_environment(placement_from_environment(), 1s);
  EXPECT_TRUE(std::filesystem::exists(id.file)) << id.file;
  const std::string name = id.file.substr(folder.path().size());
  const std::size_t number = name.find_last_not_of("0123456789");
  return name.size() - number <= 3 && name[number] == '.' ? name.substr(0, number) : name;
}

TEST(IdFile, HasOneNameOnAllHostsOfAJobAndAnotherForOtherJobs) {
  Variables torchrun{{"RANK", "0"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"TORCHELASTIC_RUN_ID", "a"},
                     {"TORCHELASTIC_RESTART_COUNT", "0"},
                     {"MASTER_ADDR", "node1"},
                     {"MASTER_PORT", "29500"}};
  const auto with = [](Variables variables, const std::string& name, const std::string& value) {
    variables[name] = value;
    return variables;
  };
  const std::string own = file_of(torchrun);
  EXPECT_EQ(own, file_of(with(torchrun, "MASTER_ADDR", "10.0.0.1")));
  EXPECT_EQ(own, file_of(with(torchrun, "TORCHELASTIC_RESTART_COUNT", "1")));
  EXPECT_NE(own, file_of(with(torchrun, "TORCHELASTIC_RUN_ID", "b")));
  EXPECT_NE(own, file_of(with(torchrun, "MASTER_PORT", "29501")));
  const Variables slurm{{"SLURM_PROCID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_JOB_ID", "8"},
                        {"SLURM_STEP_NUM_NODES", "2"}};
  EXPECT_EQ(file_of(slurm), file_of(with(slurm, "SLURM_NODEID", "1")));
  EXPECT_NE(file_of(slurm), file_of(with(slurm, "SLURM_STEP_ID", "1")));
  EXPECT_NE(file_of(slurm), file_of(with(slurm, "SLURM_RESTART_COUNT", "1")));
  const Variables by_hand{{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}};
  EXPECT_EQ(file_of(by_hand), "/id");
}

/// Starts one rank of two with these variables; its exit status.
std::future<int> start_rank(int rank, const std::string& variables, int patience) {
  const std::string command = fmt::format("env RANK={0} {1} {2} 1 {3} >/dev/null 2>&1", rank,
                                          variables, ENVIRONMENT_RANK, patience);
  return std::async(std::launch::async, [command] {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
}

/// A rank 0 of an older launch waits; both ranks of a new one meet each other.
void expect_new_ranks_meet(const std::string& old_launch, const std::string& new_launch) {
  const Environment environment({});
  auto old_zero = start_rank(0, old_launch, 2);
  std::this_thread::sleep_for(300ms);
  auto one = start_rank(1, new_launch, 20);
  std::this_thread::sleep_for(500ms);
  auto zero = start_rank(0, new_launch, 20);
  EXPECT_EQ(zero.get(), 0);
  EXPECT_EQ(one.get(), 0);
  EXPECT_EQ(old_zero.get(), 1);  // nobody has come
}

TEST(IdFile, RanksDoNotMeetAnOlderJobsWaitingRankZero) {
  const TemporaryFolder folder;
  const auto launch = [&](const std::string& job) {
    return fmt::format(
        "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE={} TUTTI_ID_FILE={} "
        "TUTTI_ADDRESS=127.0.0.1 sh -c 'OMPI_COMM_WORLD_RANK=$RANK; unset RANK; export "
        "OMPI_COMM_WORLD_RANK; exec \"$0\" \"$@\"'",
        job, folder.path("id"));
  };
  expect_new_ranks_meet(launch("old"), launch("new"));
}

// On one host, without a file.
TEST(IdHandover, RanksDoNotMeetAnOlderTorchrunsWaitingRankZero) {
  const TemporaryFolder folder;
  const auto launch = [&](const std::string& attempt) {
    return fmt::format(
        "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none "
        "TORCHELASTIC_RESTART_COUNT=0 MASTER_ADDR=localhost MASTER_PORT={} "
        "sh -c 'TORCHELASTIC_ERROR_FILE={}/{}/attempt_0/$RANK/error.json exec \"$0\" \"$@\"'",
        20000 + getpid() % 20000, folder.path(), attempt);
  };
  expect_new_ranks_meet(launch("none_1"), launch("none_2"));
}

}  // namespace
}  // namespace tutti
