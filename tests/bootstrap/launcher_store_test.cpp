// The id's way through a launcher's store, where the launcher is the test: what it answers is
// checked, what it does not answer ends a wait in time, and the error says what was waited for.
#include "bootstrap/launcher_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "bootstrap/environment.h"
#include "bootstrap/launcher.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/torch_store.h"
#include "core/error.h"
#include "tests/support/clean_environment.h"
#include "tests/support/contains.h"
#include "tests/support/processes.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

UniqueId gone_id() {
  FileDescriptor gone = listen_at(*parse_address("127.0.0.1", 0));
  return protocol::encode({bound_address(gone), {}});
}

// --- torchrun's store ---

/// A TCPStore as far as Tutti needs one. It may have its own idea of a value's length.
class FakeTorchStore {
 public:
  explicit FakeTorchStore(std::uint64_t length = 0)
      : listener_(listen_at(*parse_address("127.0.0.1", 0))), length_(length) {}
  ~FakeTorchStore() {
    stop_ = true;
    server_.join();
    peers_.clear();
  }
  std::uint16_t port() const {
    const std::string address = to_string(bound_address(listener_));
    return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }

 private:
  void serve(const FileDescriptor& peer) {
    while (!stop_) {
      std::uint8_t query = 0;
      if (!take(peer, query)) return;
      if (query == 0) {
        std::uint32_t magic = 0;
        if (!take(peer, magic) || magic != 0x3C85F7CE) return;
        continue;
      }
      std::uint64_t keys = 1;
      if (query == 6 && (!take(peer, keys) || keys != 1)) return;
      const std::string key = text(peer);
      if (query == 1) {
        set(key, text(peer));
      } else if (query == 6) {
        while (!values().contains(key) && !stop_) std::this_thread::sleep_for(1ms);
        give(peer, std::uint8_t{0});
      } else if (query == 3) {
        const std::string value = values()[key];
        give(peer, length_ > 0 ? length_ : std::uint64_t{value.size()});
        write_exactly(peer, std::as_bytes(std::span(value)), Clock::now() + 1s);
      } else {
        const std::lock_guard lock(mutex_);
        give(peer, static_cast<std::int64_t>(values_.erase(key)));
      }
    }
  }

  template <class Number>
  bool take(const FileDescriptor& peer, Number& number) {
    while (!stop_) {
      const auto bytes = std::as_writable_bytes(std::span(&number, 1));
      const IoResult result = read_exactly(peer, bytes, Clock::now() + 100ms);
      if (result != IoResult::timed_out) return result == IoResult::done;
    }
    return false;
  }
  template <class Number>
  static void give(const FileDescriptor& peer, Number number) {
    write_exactly(peer, std::as_bytes(std::span(&number, 1)), Clock::now() + 1s);
  }
  std::string text(const FileDescriptor& peer) {
    std::uint64_t length = 0;
    if (!take(peer, length)) return "";
    std::string text(length, '\0');
    read_exactly(peer, std::as_writable_bytes(std::span(text)), Clock::now() + 1s);
    return text;
  }

  const FileDescriptor listener_;
  const std::uint64_t length_;
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::atomic<bool> stop_{false};
  std::list<std::jthread> peers_;
  std::jthread server_{[this] {
    while (!stop_) {
      if (FileDescriptor peer = accept_from(listener_)) {
        peers_.emplace_back([this, socket = std::move(peer)] { serve(socket); });
      }
      std::this_thread::sleep_for(1ms);
    }
  }};
};

std::string get_error(LauncherStore& store, std::chrono::nanoseconds more = 3s) {
  constexpr auto timeout = 300ms;
  const auto begun = Clock::now();
  try {
    get_id(store, "tutti/0", 1, 2, timeout);
  } catch (const Error& error) {
    EXPECT_LT(Clock::now() - begun, timeout + more);
    EXPECT_EQ(error.rank(), 0);
    return fmt::format("{}: {}", name(error.code()), error.what());
  }
  return "";
}

TEST(TorchStore, AnIdGoesThroughItAndIsTakenBack) {
  FakeTorchStore server;
  const auto store = torch_store("localhost", server.port());
  const UniqueId id = make_unique_id();
  auto got = std::async(std::launch::async, [&] { return get_id(*store, "tutti/0", 1, 2, 10s); });
  std::this_thread::sleep_for(50ms);
  put_id(*torch_store("127.0.0.1", server.port()), "tutti/0", id, 2, 5s);
  EXPECT_EQ(got.get(), id);
  EXPECT_EQ(server.values().at("tutti/0"), to_string(id));
  store->remove("tutti/0");
  EXPECT_TRUE(server.values().empty());
}

TEST(TorchStore, AnIdThatEndedRanksHaveLeftIsNotTaken) {
  FakeTorchStore server;
  const auto store = torch_store("127.0.0.1", server.port());
  server.set("tutti/0", to_string(gone_id()));
  EXPECT_CONTAINS(get_error(*store), "timed_out: rank 1 of 2 did not get");
  EXPECT_CONTAINS(get_error(*store), "is not reached");
  auto got = std::async(std::launch::async, [&] { return get_id(*store, "tutti/0", 1, 2, 10s); });
  std::this_thread::sleep_for(200ms);
  const UniqueId id = make_unique_id();
  server.set("tutti/0", to_string(id));
  EXPECT_EQ(got.get(), id);
}

TEST(TorchStore, WhatItDoesNotHaveIsWaitedForUntilTheDeadline) {
  FakeTorchStore server;
  const std::string error = get_error(*torch_store("127.0.0.1", server.port()));
  EXPECT_CONTAINS(error,
                  "timed_out: rank 1 of 2 did not get rank 0's unique id by torchrun's store");
  EXPECT_CONTAINS(error, fmt::format("127.0.0.1:{}", server.port()));
  EXPECT_CONTAINS(error, "it has no tutti/0 in time. Is rank 0 running");
  EXPECT_CONTAINS(error, "TUTTI_ID_FILE");
}

TEST(TorchStore, ALengthIsNotBelieved) {
  FakeTorchStore server(std::uint64_t{1} << 40);
  server.set("tutti/0", to_string(gone_id()));
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", server.port())),
                  "system: rank 1 of 2 did not get rank 0's unique id");
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", server.port())),
                  "tutti/0 has 1099511627776 bytes");
}

TEST(TorchStore, ATextThatIsNoIdIsNotTaken) {
  FakeTorchStore server;
  server.set("tutti/0", "nonsense");
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", server.port())),
                  "a unique id is 256 hexadecimal digits");
}

TEST(TorchStore, WhoeverElseListensThereIsNotWaitedFor) {
  const FileDescriptor other = listen_at(*parse_address("127.0.0.1", 0));
  const std::string address = to_string(bound_address(other));
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", port)), "timed_out");
  std::jthread closes([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      accept_from(other);
      std::this_thread::sleep_for(1ms);
    }
  });
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", port)), "is it PyTorch's TCPStore?");
  EXPECT_CONTAINS(get_error(*torch_store("127.0.0.1", 1)), "Connection refused");
  EXPECT_CONTAINS(get_error(*torch_store("nowhere.invalid", 1), 30s),
                  "this host does not know the name nowhere.invalid");
}

TEST(TorchStore, AWebServerAtItsPortIsRecognised) {
  const FileDescriptor other = listen_at(*parse_address("127.0.0.1", 0));
  const std::string address = to_string(bound_address(other));
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  std::jthread answers([&](const std::stop_token& stop) {
    std::list<FileDescriptor> open;
    while (!stop.stop_requested()) {
      if (FileDescriptor client = accept_from(other)) {
        const std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
        write_exactly(client, std::as_bytes(std::span(text)), deadline_after(1s));
        open.push_back(std::move(client));
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  const std::string error = get_error(*torch_store("127.0.0.1", port));
  EXPECT_CONTAINS(error, "it answers as no TCPStore of PyTorch does (with the byte 72)");
  EXPECT_CONTAINS(error, "such as a web server");
}

// --- rank 0's own store, where there is no torchrun ---

std::uint16_t port_of(const FileDescriptor& listener) {
  const std::string address = to_string(bound_address(listener));
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

TEST(TorchServer, RankZeroServesItsIdUntilAllHaveMet) {
  const std::uint16_t port = port_of(listen_at(*parse_address("127.0.0.1", 0)));
  const auto server = torch_server("127.0.0.1", port);
  const auto get = [port](const std::string& key) {
    return std::async(std::launch::async,
                      [=] { return get_id(*torch_store("127.0.0.1", port), key, 1, 4, 10s); });
  };
  // Before there is a server, and while there is one for another key.
  auto early = get("tutti/0"), next = get("tutti/1");
  std::this_thread::sleep_for(100ms);
  const UniqueId first = make_unique_id(), second = make_unique_id();
  put_id(*server, "tutti/0", first, 4, 10s);
  // Strangers: one is silent, one talks.
  const FileDescriptor silent = connect_to(*parse_address("127.0.0.1", port), Clock::now() + 1s);
  const FileDescriptor talks = connect_to(*parse_address("127.0.0.1", port), Clock::now() + 1s);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  EXPECT_EQ(write_exactly(talks, std::as_bytes(std::span(request)), Clock::now() + 1s),
            IoResult::done);
  std::array<std::byte, 1> answer{};
  EXPECT_EQ(read_exactly(talks, answer, Clock::now() + 5s), IoResult::closed);
  EXPECT_EQ(early.get(), first);
  EXPECT_EQ(get("tutti/0").get(), first);
  server->remove("tutti/0");
  const auto other = torch_server("127.0.0.1", port);
  put_id(*other, "tutti/1", second, 4, 10s);
  EXPECT_EQ(next.get(), second);
  other->remove("tutti/1");
  EXPECT_TRUE(eventually(
      [&] { return static_cast<bool>(listen_at(*parse_address("127.0.0.1", port), true)); }));
}

TEST(TorchServer, WherePytorchHasThePortItTakesTheId) {
  FakeTorchStore pytorch;
  const UniqueId id = make_unique_id();
  put_id(*torch_server("127.0.0.1", pytorch.port()), "tutti/0", id, 2, 10s);
  EXPECT_EQ(pytorch.values().at("tutti/0"), to_string(id));
}

// --- PMI and PMIx: a process has one connection, so each test has processes of its own ---

/// What rank 1 of 2, a new process with these variables, says about its id: the id, or the error.
std::string said_by_rank(const Variables& variables, const char* library = nullptr) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const Environment environment(variables);
  const pid_t child = fork();
  if (child == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execl(ID_RANK, "id_rank", "300", library, nullptr);
    ::_exit(99);
  }
  ::close(pipe[1]);
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t got = 0; (got = ::read(pipe[0], piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(got));
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

/// The same with a launcher that speaks PMI: by command, what it answers. "": nothing.
std::string said_under_pmi(std::map<std::string, std::string> answers, int rank = 1,
                           std::string* last = nullptr, const Variables& more = {}) {
  const std::map<std::string, std::string> usual{
      {"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
      {"get_my_kvsname", "cmd=my_kvsname kvsname=space\n"},
      {"put", "cmd=put_result rc=0 msg=success\n"},
      {"barrier_in", "cmd=barrier_out\n"},
      {"get", "cmd=get_result rc=0 msg=success value=" + std::string(256, 'a') + "\n"},
      {"finalize", "cmd=finalize_ack\n"}};
  answers.insert(usual.begin(), usual.end());
  std::array<int, 2> sockets{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  std::thread launcher([&] {
    std::string line;
    for (char c = 0; ::recv(sockets[0], &c, 1, 0) == 1;) {
      if (c != '\n') {
        line += c;
        continue;
      }
      const std::string command = line.substr(4, line.find(' ') - 4);
      line.clear();
      if (last != nullptr) *last = command;
      const std::string answer = answers.contains(command) ? answers.at(command) : "";
      if (answer == "close") break;
      // In two pieces, as a stream may have it.
      for (const std::string& piece :
           {answer.substr(0, answer.size() / 2), answer.substr(answer.size() / 2)}) {
        ::send(sockets[0], piece.data(), piece.size(), MSG_NOSIGNAL);
      }
    }
    ::shutdown(sockets[0], SHUT_RDWR);
  });
  Variables variables = more;
  variables.merge(Variables{{"PMI_RANK", std::to_string(rank)},
                            {"PMI_SIZE", "2"},
                            {"MPI_LOCALNRANKS", "1"},
                            {"PMI_FD", std::to_string(sockets[1])}});
  const std::string said = said_by_rank(variables);
  ::shutdown(sockets[0], SHUT_RDWR);
  launcher.join();
  ::close(sockets[0]);
  ::close(sockets[1]);
  return said;
}

TEST(PmiStore, TheIdIsWhatTheLauncherHas) {
  EXPECT_EQ(said_under_pmi({}), std::string(256, 'a'));
  // As newer launchers write it.
  EXPECT_EQ(said_under_pmi({{"barrier_in", "cmd=barrier_out rc=0 tag=0\n"},
                            {"get", "cmd=get_result rc=0 value=" + std::string(256, 'b') + "\n"}}),
            std::string(256, 'b'));
}

/// MPI_Comm_spawn()'s processes have the proxy of their parents above them.
TEST(PmiStore, NamesTheWorldOfSpawnedProcesses) {
  const Variables here{{"MPI_LOCALNRANKS", "2"}};
  const Variables spawned{{"MPI_LOCALNRANKS", "2"}, {"PMI_SPAWNED", "1"}};
  EXPECT_EQ(said_under_pmi({}, 1, nullptr, here).find("space"), std::string::npos);
  EXPECT_CONTAINS(said_under_pmi({}, 1, nullptr, spawned), "-space#0' in time");
  EXPECT_CONTAINS(said_under_pmi({{"init", "close"}}, 1, nullptr, spawned),
                  "this rank does not hear its world's name by PMI (PMI_FD=");
}

/// Two programs at once would read each other's answers.
TEST(PmiStore, SpeaksForOneProcessOfARank) {
  const Environment rank({{"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"},
                          {"PMI_PORT", "here:1"},
                          {"PMI_ID", std::to_string(getpid())}});
  const Launcher* const launcher = find_launcher();
  ASSERT_NE(launcher, nullptr);
  const auto in_child = [&](int seconds) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      take_seat(*launcher);
      [[maybe_unused]] const auto told = ::write(ready[1], "1", 1);
      ::sleep(static_cast<unsigned>(seconds));
      ::_exit(0);
    }
    char told = 0;
    EXPECT_EQ(::read(ready[0], &told, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  };
  const pid_t lasting = in_child(100);
  try {
    take_seat(*launcher);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(error.what(), fmt::format("pid {} (", lasting));
  }
  ::kill(lasting, SIGKILL);
  ::waitpid(lasting, nullptr, 0);
  const pid_t ending = in_child(0);
  take_seat(*launcher);
  take_seat(*launcher);  // it has it
  ::waitpid(ending, nullptr, 0);
}

TEST(PmiStore, AProcessSaysGoodByeAlsoWhereItHasGivenUp) {
  std::string last;
  said_under_pmi({}, 1, &last);
  EXPECT_EQ(last, "finalize");
  said_under_pmi({{"barrier_in", ""}}, 1, &last);
  EXPECT_EQ(last, "finalize");
}

TEST(PmiStore, ErrorsSayWhatTheLauncherDid) {
  const std::vector<std::pair<std::map<std::string, std::string>, std::string>> rows{
      {{{"init", "cmd=response_to_init rc=-1\n"}}, "response_to_init rc=-1"},
      {{{"get", "cmd=get_result rc=-1 msg=key_not_found\n"}}, "get_result rc=-1 key_not_found"},
      {{{"get", "cmd=get_result rc=0 value=abc\n"}}, "a unique id is 256 hexadecimal digits"},
      {{{"get_my_kvsname", "cmd=my_kvsname\n"}}, "names no space for keys"},
      {{{"get_my_kvsname", "cmd=other\n"}}, "answers 'other' instead of 'my_kvsname'"},
      {{{"get_my_kvsname", std::string(20000, 'x')}}, "a line without an end"},
      {{{"get_my_kvsname", "close"}}, "the launcher has closed the connection"},
      {{{"init", ""}}, "the launcher has not sent 'response_to_init' in time"},
      {{{"barrier_in", ""}}, "not all ranks have come to the barrier in time"},
  };
  for (const auto& [answers, message] : rows) {
    const std::string said = said_under_pmi(answers);
    EXPECT_CONTAINS(said, message);
    EXPECT_CONTAINS(said, "rank 1 of 2 did not get rank 0's unique id by PMI (PMI_FD=");
  }
  const std::string zero = said_under_pmi({{"put", "cmd=put_result rc=-1 msg=too_long\n"}}, 0);
  EXPECT_CONTAINS(zero, "rank 0 of 2 could not leave the unique id for the others in PMI");
  EXPECT_CONTAINS(zero, "put_result rc=-1 too_long");
  const Variables closed{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}, {"PMI_FD", "777"}};
  EXPECT_CONTAINS(said_by_rank(closed), "PMI_FD is 777, which is not open");
  EXPECT_CONTAINS(said_by_rank({{"PMI_PORT", "nowhere"}, {"PMI_ID", "1"}}),
                  "this rank has no place by PMI (PMI_PORT=nowhere): PMI_PORT is 'nowhere', not "
                  "HOST:PORT");
}

std::string said_under_pmix(const std::string& mode) {
  return said_by_rank({{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                       {"PMIX_RANK", "1"},
                       {"PMIX_NAMESPACE", "fake"},
                       {"PMIX_PREFIX", FAKE_PMIX_FOLDER},
                       {"FAKE_PMIX", mode}});
}

TEST(PmixStore, TheIdIsWhatTheLauncherHas) {
  EXPECT_EQ(said_under_pmix(std::string(256, 'c')), std::string(256, 'c'));
}

TEST(PmixStore, BeginsInTheConstructorOfALibrary) {
  const std::string id(256, 'e');
  EXPECT_EQ(said_by_rank({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                          {"PMIX_RANK", "1"},
                          {"PMIX_NAMESPACE", "fake"},
                          {"PMIX_PREFIX", FAKE_PMIX_FOLDER},
                          {"FAKE_PMIX", id}},
                         ID_LIBRARY),
            id);
}

/// As prterun starts it: the size comes from the library.
std::string said_under_pmix_alone(const std::string& mode, const std::string& prefix) {
  return said_by_rank({{"PMIX_RANK", "1"},
                       {"PMIX_NAMESPACE", "fake"},
                       {"PMIX_PREFIX", prefix},
                       {"FAKE_PMIX", mode}});
}

TEST(PmixStore, SaysTheSizeWhereNoVariableDoes) {
  EXPECT_EQ(said_under_pmix_alone(std::string(256, 'd'), FAKE_PMIX_FOLDER), std::string(256, 'd'));
  EXPECT_CONTAINS(said_under_pmix_alone("abc", FAKE_PMIX_FOLDER),
                  "rank 1 of 2 did not get rank 0's unique id by PMIx (PMIX_NAMESPACE=fake): ");
  for (const auto& [mode, message] :
       {std::pair{"lost", "PMIx_Init() of libpmix (fake 1) says FAKE-STATUS (-25)"},
        std::pair{"no number", "pmix.job.size is no number"}}) {
    const std::string said = said_under_pmix_alone(mode, FAKE_PMIX_FOLDER);
    EXPECT_CONTAINS(said, message);
    EXPECT_CONTAINS(said, "PMIX_RANK is set, and no other variable says how many ranks there are");
  }
}

TEST(PmixStore, ErrorsSayWhatTheLibraryDid) {
  for (const auto& [mode, message] :
       {std::pair{"hang", "PMIx_Fence() has not returned in time: not all ranks have come to it"},
        std::pair{"lost", "PMIx_Init() of libpmix (fake 1) says FAKE-STATUS (-25)"},
        std::pair{"number", "a unique id is 256 hexadecimal digits"},
        std::pair{"abc", "a unique id is 256 hexadecimal digits"}}) {
    const std::string said = said_under_pmix(mode);
    EXPECT_CONTAINS(said, message);
    EXPECT_CONTAINS(said,
                    "rank 1 of 2 did not get rank 0's unique id by PMIx (PMIX_NAMESPACE=fake): ");
  }
}

}  // namespace
}  // namespace tutti
