#include "job.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace small {
namespace {

using Clock = std::chrono::steady_clock;

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// The file by which ranks meet, which goes with this object.
class MeetingFile {
 public:
  explicit MeetingFile(std::string name) : name_(std::move(name)) {}
  ~MeetingFile() { ::unlink(name_.c_str()); }
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::string name_;
};

[[noreturn]] void fail_system(const std::string& what) {
  throw Error(what + ": " + std::strerror(errno));
}

}  // namespace

Job::Job(const std::string& file, int rank, int ranks, std::chrono::milliseconds timeout,
         std::size_t slot_bytes)
    : rank_(rank), ranks_(ranks), slot_bytes_(slot_bytes), timeout_(timeout) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) {
    throw Error("there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                ": a job has 1 to " + std::to_string(kMostRanks) + " ranks, numbered from 0");
  }
  if (slot_bytes == 0 || slot_bytes % 64 != 0 || slot_bytes > (std::size_t{1} << 24)) {
    throw Error("a slot has a multiple of 64 bytes, up to 16 MiB, not " +
                std::to_string(slot_bytes));
  }
  try {
    rank == 0 ? make(file) : find(file);
  } catch (...) {
    if (board_ != nullptr) ::munmap(board_, bytes());
    throw;
  }
}

Job::~Job() { ::munmap(board_, bytes()); }

std::size_t Job::bytes() const {
  const auto n = static_cast<std::size_t>(ranks_);
  return (sizeof(Board) + 63) / 64 * 64 + n * n * link_bytes();
}

Link& Job::link(int sender, int receiver) {
  const auto index = static_cast<std::size_t>(sender * ranks_ + receiver);
  std::byte* first = reinterpret_cast<std::byte*>(board_) + (sizeof(Board) + 63) / 64 * 64;
  return *reinterpret_cast<Link*>(first + index * link_bytes());
}

Slot& Job::slot(int sender, int receiver, std::uint64_t message) {
  std::byte* first = reinterpret_cast<std::byte*>(&link(sender, receiver)) + sizeof(Link);
  return *reinterpret_cast<Slot*>(first + message % kSlots * (sizeof(Slot) + slot_bytes_));
}

void Job::make(const std::string& file) {
  const Descriptor memory(::memfd_create("small", MFD_CLOEXEC));
  // Pages that nobody touches take no memory: a ring uses n of the n * n links.
  if (!memory.is_open() || ::ftruncate(memory.get(), static_cast<off_t>(bytes())) != 0) {
    fail_system("rank 0 cannot make " + std::to_string(bytes()) + " bytes of shared memory");
  }
  map(memory.get(), "the memory of this job");
  board_->ranks = ranks_;
  board_->slot_bytes = slot_bytes_;

  // The others must not read half of the file: it gets its name when it is written.
  const std::string text =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.get()) + "\n";
  const std::string draft = file + ".draft";
  {
    const MeetingFile until_renamed(draft);
    const Descriptor out(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!out.is_open() ||
        ::write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::link(draft.c_str(), file.c_str()) != 0) {  // rename() would replace another job's file
      fail_system("rank 0 cannot make the file " + file + ", by which the ranks meet");
    }
  }
  const MeetingFile until_all_are_there(file);
  board_->present[0].store(true, std::memory_order_release);
  for (int r = 1; r < ranks_; ++r) {
    wait(
        r, [&] { return board_->present[r].load(std::memory_order_acquire); },
        [&] { return "to come, by the file " + file; });
  }
}

void Job::find(const std::string& file) {
  const auto deadline = Clock::now() + timeout_;
  while (Clock::now() < deadline) {
    // Somebody else's file could lead anywhere, so its owner has to be this user.
    const Descriptor in(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    char text[64] = {};
    int pid = 0, fd = 0;
    if (in.is_open() && ::fstat(in.get(), &status) == 0 && status.st_uid == ::geteuid() &&
        ::read(in.get(), text, sizeof text - 1) > 0 &&
        std::sscanf(text, "/proc/%d/fd/%d", &pid, &fd) == 2) {
      const std::string place = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
      const Descriptor memory(::open(place.c_str(), O_RDWR | O_CLOEXEC));
      if (memory.is_open()) {
        if (::fstat(memory.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes())) {
          throw Error("rank " + std::to_string(rank_) + ": the job of the file " + file +
                      " has another number of ranks, or other slots, than this rank was told");
        }
        map(memory.get(), file);
        if (board_->ranks != ranks_ || board_->slot_bytes != slot_bytes_) {
          fail("rank " + std::to_string(rank_) + " was told of other ranks or slots than rank 0");
        }
        if (board_->present[rank_].exchange(true, std::memory_order_acq_rel)) {
          fail("there are two ranks " + std::to_string(rank_));
        }
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Error("rank " + std::to_string(rank_) + " waited " + std::to_string(timeout_.count()) +
              " ms for rank 0 to make the file " + file);
}

void Job::map(int memory, const std::string& where) {
  void* address = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (address == MAP_FAILED) fail_system("rank " + std::to_string(rank_) + " cannot map " + where);
  board_ = static_cast<Board*>(address);  // zeros, as new memory is: nobody present, nothing sent
}

void Job::wait(int peer, const std::function<bool()>& ready,
               const std::function<std::string()>& what) {
  for (int spin = 0; spin < 1000; ++spin) {
    if (ready()) return;
  }
  const std::string self = "rank " + std::to_string(rank_);
  const auto deadline = Clock::now() + timeout_;
  board_->awaited[rank_].store(peer + 1, std::memory_order_relaxed);
  for (int look = 0; !ready(); ++look) {
    if (board_->failed.load(std::memory_order_acquire)) {
      throw Error(self + " was waiting for rank " + std::to_string(peer) + " " + what() +
                  ", when " + board_->failure);
    }
    if (Clock::now() > deadline) {
      fail(self + " waited " + std::to_string(timeout_.count()) + " ms for rank " +
           std::to_string(peer) + " " + what() + awaited(peer));
    }
    // There may be more ranks than cores: let the others work.
    if (look < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  board_->awaited[rank_].store(0, std::memory_order_relaxed);
}

/// "; rank 3 waits for rank 2, rank 2 for rank 1": where the fault is, far from who notices it.
std::string Job::awaited(int peer) const {
  std::string text;
  for (int i = 0; i < ranks_; ++i) {  // in a deadlock the line has no end
    const int next = board_->awaited[peer].load(std::memory_order_relaxed) - 1;
    if (next < 0 || next >= ranks_) break;
    text += (text.empty() ? "; rank " : ", rank ") + std::to_string(peer) +
            (text.empty() ? " waits for rank " : " for rank ") + std::to_string(next);
    peer = next;
  }
  return text;
}

void Job::fail(const std::string& why) {
  int nobody = 0;
  if (board_->failing.compare_exchange_strong(nobody, rank_ + 1)) {
    std::snprintf(board_->failure, sizeof board_->failure, "%s", why.c_str());
    board_->failed.store(true, std::memory_order_release);
  }
  throw Error(why);
}

}  // namespace small
