// See background.h.
#include "core/background.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/log.h"

namespace tutti {
namespace {

struct Worker {
  std::thread thread;
  std::atomic<bool> finished{false};
};

class Registry {
 public:
  Registry() {
    log();  // made before this object is, so it is still there when the last thread logs
  }

  ~Registry() {
    forget_after_fork();
    if (workers_.empty()) return;
    const std::uint64_t one = 1;
    // The counter starts at 0 and nobody else writes it: this cannot block or fail.
    [[maybe_unused]] const ssize_t written = ::write(stop_fd_, &one, sizeof one);
    for (Worker& worker : workers_) worker.thread.join();
  }

  void start(std::string_view name, std::function<void(int)> body) {
    const std::lock_guard lock(mutex_);
    forget_after_fork();
    if (stop_fd_ < 0) stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd_ < 0) throw_system_error("making an eventfd for the thread " + std::string(name));
    workers_.remove_if([](Worker& worker) {
      if (!worker.finished.load(std::memory_order_acquire)) return false;
      worker.thread.join();
      return true;
    });
    Worker& worker = workers_.emplace_back();
    try {
      // The new thread inherits the mask: the user's handlers are not to run on it.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        worker.thread = std::thread(run, std::ref(worker), std::string(name.substr(0, 15)),
                                    std::move(body), stop_fd_);
      } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    } catch (const std::system_error& error) {
      workers_.pop_back();
      throw_system_error("starting the thread " + std::string(name), error.code().value());
    }
  }

 private:
  static void run(Worker& worker, const std::string& name, const std::function<void(int)>& body,
                  int stop_fd) {
    pthread_setname_np(pthread_self(), name.c_str());
    try {
      body(stop_fd);
    } catch (const std::exception& error) {
      log().error("{}: {}", name, error.what());
    }
    worker.finished.store(true, std::memory_order_release);
  }

  /// In a forked child the threads do not exist, and the descriptor is shared with the parent.
  void forget_after_fork() {
    if (::getpid() == process_) return;
    process_ = ::getpid();
    stop_fd_ = -1;
    // Neither joining nor destroying a thread that is not there would end, so these stay for ever.
    abandoned_ = new std::list<Worker>(std::move(workers_));
    workers_.clear();
  }

  int stop_fd_ = -1;  // stays open to the end of the process
  pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::list<Worker> workers_;
  std::list<Worker>* abandoned_ = nullptr;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void run_in_background(std::string_view name, std::function<void(int stop_fd)> body) {
  registry().start(name, std::move(body));
}

}  // namespace tutti
