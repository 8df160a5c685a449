// See background.h.
#include "core/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <latch>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/fork.h"
#include "core/log.h"

namespace tutti {
namespace {

thread_local int own_stop_fd = -1;  // of a background thread
thread_local bool (*interrupted)() = nullptr;

struct Worker {
  std::thread thread;
  std::atomic<bool> finished{false};
};

class Threads {
 public:
  /// The process exits: no thread is started any more, and all have ended on return.
  void stop() {
    std::list<Worker> last;
    {
      const std::lock_guard lock(mutex_);
      forget_after_fork();
      exiting_.store(true, std::memory_order_release);
      last.swap(workers_);
      if (last.empty()) return;
    }
    const std::uint64_t one = 1;
    // The counter starts at 0 and nobody else writes it: this cannot block or fail.
    [[maybe_unused]] const ssize_t written = ::write(stop_fd_, &one, sizeof one);
    for (Worker& worker : last) worker.thread.join();
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool exiting() const { return exiting_.load(std::memory_order_acquire); }

  void start(std::string_view name, std::function<void(int)> body) {
    const std::lock_guard lock(mutex_);
    forget_after_fork();
    if (exiting()) {
      throw Error(ErrorCode::aborted,
                  "the thread " + std::string(name) + " is not started: the process is exiting");
    }
    if (stop_fd_ < 0) stop_fd_ = above_standard(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (stop_fd_ < 0) throw_system_error("making an eventfd for the thread " + std::string(name));
    workers_.remove_if([](Worker& worker) {
      if (!worker.finished.load(std::memory_order_acquire)) return false;
      worker.thread.join();
      return true;
    });
    Worker& worker = workers_.emplace_back();
    try {
      worker.thread =
          start_thread(name, [this, &worker, name = std::string(name), body = std::move(body),
                              stop_fd = stop_fd_] { run(worker, name, body, stop_fd); });
    } catch (...) {
      workers_.pop_back();
      throw;
    }
  }

 private:
  void run(Worker& worker, const std::string& name, const std::function<void(int)>& body,
           int stop_fd) {
    own_stop_fd = stop_fd;
    try {
      body(stop_fd);
    } catch (const std::exception& error) {
      if (!exiting()) log().error("{}: {}", name, error.what());
    }
    worker.finished.store(true, std::memory_order_release);
  }

  /// In a forked child the threads do not exist, and the descriptor is shared with the parent.
  void forget_after_fork() {
    if (process_generation() == generation_) return;
    generation_ = process_generation();
    stop_fd_ = -1;
    const auto gone = std::make_shared<std::list<Worker>>();
    gone->swap(workers_);
    abandon(gone);
  }

  int stop_fd_ = -1;  // stays open to the end of the process
  std::uint32_t generation_ = process_generation();
  std::atomic<bool> exiting_{false};
  std::mutex mutex_;
  std::list<Worker> workers_;
};

Threads& all_threads() {
  static auto* const instance = new Threads;  // never destroyed: what exits later may ask it
  return *instance;
}

// When the library is loaded, and so before locks that are held while a thread is started: a fork
// takes these first (hold_across_fork()).
[[maybe_unused]] const bool held = [] {
  hold_across_fork([] { all_threads().lock(); }, [] { all_threads().unlock(); });
  return true;
}();

/// From the first call on, they are stopped at exit.
Threads& threads() {
  struct AtExit {
    ~AtExit() { all_threads().stop(); }
  };
  static const AtExit at_exit;
  return all_threads();
}

}  // namespace

void run_in_background(std::string_view name, std::function<void(int stop_fd)> body) {
  threads().start(name, std::move(body));
}

std::thread start_thread(std::string_view name, std::function<void()> body) {
  // The new thread inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread([name = std::string(name.substr(0, 15)), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw_no_thread(name, error);
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

bool must_stop() {
  return (interrupted != nullptr && interrupted()) || (own_stop_fd >= 0 && threads().exiting());
}

void throw_if_stopping() {
  if (must_stop()) throw Error(ErrorCode::aborted, "interrupted: the process is about to exit");
}

Interruptible::Interruptible(bool (*asked)()) : before_(std::exchange(interrupted, asked)) {}
Interruptible::~Interruptible() { interrupted = before_; }
bool Interruptible::any() { return interrupted != nullptr; }

int stop_descriptor() { return own_stop_fd; }

void pause_for(std::chrono::nanoseconds time) {
  throw_if_stopping();
  std::this_thread::sleep_for(time);
}

std::chrono::nanoseconds next_pause(std::chrono::steady_clock::time_point begun,
                                    std::size_t ranks) {
  using namespace std::chrono_literals;
  using Duration = std::chrono::steady_clock::duration;
  return std::clamp<Duration>((std::chrono::steady_clock::now() - begun) / 8, 50us,
                              among(ranks, Duration(10ms)));
}

void pause_in_wait(std::chrono::steady_clock::time_point begun, std::size_t ranks) {
  pause_for(next_pause(begun, ranks));
}

void throw_no_thread(std::string_view what, const std::system_error& error) {
  throw Error(ErrorCode::system,
              "starting a thread (" + std::string(what) + "): " + error.code().message() +
                  "; `ulimit -u` and the pids limit of a container say how many there may be");
}

void run_side_by_side(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::latch all_started(1);
  bool may_run = false;
  const int stop_fd = own_stop_fd;
  std::vector<std::jthread> threads;
  try {
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&, i] {
        own_stop_fd = stop_fd;
        all_started.wait();
        if (may_run) body(i);
      });
    }
    may_run = true;
  } catch (const std::system_error& error) {
    all_started.count_down();
    throw_no_thread("threads that work together", error);
  } catch (...) {
    all_started.count_down();
    throw;
  }
  all_started.count_down();
  if (count > 0) body(0);
}

}  // namespace tutti
