// A rank of four. One of the four makes the others wait, in one of many ways: hung_rank KIND.
// Before, all make forty calls together. The rank to blame says "now" when it begins to be to
// blame; the job is never over by itself.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/named_calls.h"
#include "comm/window.h"

namespace {

using tutti::Communicator;
using tutti::DataType;

constexpr int kGuilty = 2;
constexpr std::size_t kCount = 1024;

void say_now() {
  std::puts("now");
  std::fflush(stdout);
}

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

struct Rank {
  Communicator& comm;
  std::vector<float> in = std::vector<float>(kCount, 1.0F), out = in;

  int number() const { return comm.rank(); }
  bool is_guilty() const { return number() == kGuilty; }
  void all_reduce(std::size_t count = kCount) {
    comm.all_reduce(in.data(), out.data(), count, DataType::float32);
  }
  void broadcast() { comm.broadcast(in.data(), out.data(), kCount, DataType::float32, 0); }
  /// The guilty one does this before its next call; the others call.
  void instead(const std::function<void()>& what) {
    if (is_guilty()) {
      say_now();
      what();
    }
    all_reduce();
    sleep_for_ever();
  }
};

void lock_twice() {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_mutex_lock(&mutex);
}

void compute_for_ever() {
  std::atomic<unsigned> turns{0};
  for (;;) turns.fetch_add(1, std::memory_order_relaxed);
}

void read_for_ever() {
  int ends[2];
  char byte = 0;
  if (pipe(ends) == 0 && read(ends[0], &byte, 1) < 0) std::abort();
}

const std::map<std::string, void (*)(Rank&)>& kinds() {
  static const std::map<std::string, void (*)(Rank&)> all{
      {"sleeps", [](Rank& r) { r.instead(sleep_for_ever); }},
      {"computes", [](Rank& r) { r.instead(compute_for_ever); }},
      {"reads", [](Rank& r) { r.instead(read_for_ever); }},
      {"locks", [](Rank& r) { r.instead(lock_twice); }},
      {"is-stopped", [](Rank& r) { r.instead([] { raise(SIGSTOP); }); }},
      {"dies", [](Rank& r) { r.instead([] { raise(SIGKILL); }); }},
      {"leaves",
       [](Rank& r) {
         r.instead([&r] {
           r.comm.destroy();
           sleep_for_ever();
         });
       }},
      {"raises",
       [](Rank& r) {
         r.instead([&r] {
           try {
             r.comm.all_reduce(nullptr, r.out.data(), kCount, DataType::float32);
           } catch (const tutti::Error&) {
             sleep_for_ever();
           }
         });
       }},
      {"skips",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         if (!r.is_guilty()) r.all_reduce();
         r.comm.barrier();
         sleep_for_ever();
       }},
      {"swaps",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         if (r.is_guilty()) r.broadcast();
         r.all_reduce();
         if (!r.is_guilty()) r.broadcast();
         sleep_for_ever();
       }},
      {"other-shape",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         r.all_reduce(r.is_guilty() ? kCount - 1 : kCount);
         sleep_for_ever();
       }},
      {"other-group",
       [](Rank& r) {
         Communicator pair = r.comm.split(r.number() / 2, r.number());
         if (!r.is_guilty()) r.all_reduce();
         say_now();
         pair.all_reduce(r.in.data(), r.out.data(), kCount, DataType::float32);
         sleep_for_ever();
       }},
      {"two-groups",
       [](Rank& r) {
         Communicator a = r.comm.split(0, r.number()), b = r.comm.split(0, r.number());
         Communicator* first = r.number() < kGuilty ? &a : &b;
         Communicator* second = r.number() < kGuilty ? &b : &a;
         if (r.is_guilty()) say_now();
         first->all_reduce(r.in.data(), r.out.data(), kCount, DataType::float32);
         second->all_reduce(r.in.data(), r.out.data(), kCount, DataType::float32);
         sleep_for_ever();
       }},
      {"recv-without-send",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         if (r.number() == 1) r.comm.recv(r.out.data(), 8, DataType::float32, kGuilty);
         sleep_for_ever();
       }},
      {"wrong-peer",
       [](Rank& r) {
         if (r.is_guilty()) {
           say_now();
           r.comm.send(r.in.data(), 8, DataType::float32, 3);
         }
         if (r.number() == 1) r.comm.recv(r.out.data(), 8, DataType::float32, kGuilty);
         r.comm.barrier();
         sleep_for_ever();
       }},
      {"wrong-message",
       [](Rank& r) {
         if (r.is_guilty()) {
           say_now();
           r.comm.send(r.in.data(), 7, DataType::float32, 1);
         }
         if (r.number() == 1) r.comm.recv(r.out.data(), 8, DataType::float32, kGuilty);
         sleep_for_ever();
       }},
      {"subset",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         if (r.number() < kGuilty) r.comm.barrier();
         sleep_for_ever();
       }},
      {"no-signal",
       [](Rank& r) {
         tutti::Window window = r.comm.window(4096);
         if (r.is_guilty()) say_now();
         if (r.number() == 1) window.wait_signal(kGuilty);
         sleep_for_ever();
       }},
      {"slow",
       [](Rank& r) {
         if (r.is_guilty()) say_now();
         for (;;) {
           if (r.is_guilty()) std::this_thread::sleep_for(std::chrono::seconds(1));
           r.all_reduce();
         }
       }},
      {"not-started",
       [](Rank& r) {
         tutti::Call call;
         call.collective = tutti::Collective::all_reduce;
         call.in = r.in.data();
         call.out = r.out.data();
         call.count = kCount;
         call.type = DataType::float32;
         if (r.is_guilty()) {
           say_now();
           sleep_for_ever();
         }
         r.comm.start(call).wait();
         sleep_for_ever();
       }},
      {"no-message-among-started-calls",
       [](Rank& r) {
         tutti::Call recv;
         recv.collective = tutti::Collective::send_recv;
         recv.out = r.out.data();
         recv.count = 8;
         recv.type = DataType::float32;
         recv.peer = (r.number() + 1) % 4;
         // All wait for messages that come later, and are not what holds them up.
         const tutti::Future later = r.comm.start(recv);
         r.instead(sleep_for_ever);
       }},
  };
  return all;
}

int run_threads() {
  auto comms = Communicator::create_local(4);
  std::vector<std::thread> threads;
  for (Communicator& comm : comms) {
    threads.emplace_back([&comm] {
      Rank rank{comm};
      for (int i = 0; i < 40; ++i) rank.all_reduce();
      rank.instead(sleep_for_ever);
    });
  }
  for (std::thread& t : threads) t.join();
  return 0;
}

/// Keeps a failed rank there, as a program that catches everything does.
int run(const std::string& kind) {
  const char* const number = std::getenv("TUTTI_RANK");
  const int rank = number == nullptr ? 0 : std::atoi(number);
  if (kind == "threads") return run_threads();
  if (kind == "does-not-begin" && rank == kGuilty) {
    say_now();
    sleep_for_ever();
  }
  if (kind == "on-two-hosts") {
    setenv("TUTTI_HOST_ID", rank < 2 ? "first" : "second", 1);
  }
  Communicator comm = Communicator::from_environment();
  Rank r{comm};
  for (int i = 0; i < 40; ++i) r.all_reduce();
  kinds().at(kind == "on-two-hosts" ? "sleeps" : kind)(r);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc == 2 ? argv[1] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::fflush(stderr);
    sleep_for_ever();
  }
}
