// See id_handover.h.
#include "bootstrap/id_handover.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "core/log.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 5ms;            // between two attempts
constexpr auto kToLookAgain = 100ms;    // where another program's rank 0 was there
constexpr auto kForOwnSize = 2s;        // where another size's was
constexpr auto kLocalPatience = 200ms;  // for a local peer to say its few bytes

struct Request {
  std::uint32_t version = protocol::kVersion;
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

enum class Verdict : std::int32_t {
  given = 1,
  given_before = 2,
  other_size = 3,
  other_version = 4
};

struct Answer {
  Verdict verdict{};
  std::int32_t size = 0;  // rank 0's
  std::uint32_t version = protocol::kVersion;
  UniqueId id;
};

/// The rank's side; nothing where the other one has gone.
std::optional<Answer> ask(const FileDescriptor& socket, int rank, int size, Deadline deadline) {
  Request request;
  request.rank = rank;
  request.size = size;
  Answer answer;
  if (write_exactly(socket, protocol::bytes_of(request), deadline) != IoResult::done ||
      read_exactly(socket, protocol::writable_bytes_of(answer), deadline) != IoResult::done) {
    return std::nullopt;
  }
  return answer;
}

bool same_user(const FileDescriptor& socket) {
  return peer_user(socket) == std::int64_t{own_user()};
}

/// The serving end. A peer that says nothing is not waited for long: all of them are local.
class Offer {
 public:
  Offer(FileDescriptor listener, int size, const UniqueId& id, Deadline deadline)
      : listener_(std::move(listener)),
        size_(size),
        id_(id),
        deadline_(deadline),
        given_(static_cast<std::size_t>(size)),
        left_(size - 1) {}

  void run(int stop_fd) {
    while (left_ > 0 && Clock::now() < deadline_) {
      pollfd entries[] = {{listener_.fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
      const int ready = ::poll(entries, 2, milliseconds_until(deadline_));
      if (ready < 0 && errno != EINTR) throw_system_error("poll while handing out the unique id");
      if (ready <= 0) continue;
      if (entries[1].revents != 0) return;
      while (const FileDescriptor peer = accept_from(listener_)) serve(peer);
      if (errno == EMFILE || errno == ENFILE) pause_for(kPause);
    }
  }

 private:
  void serve(const FileDescriptor& peer) {
    if (!same_user(peer)) {
      log().debug("id hand-over: user {} was refused", peer_user(peer));
      return;
    }
    Request request;
    const Deadline soon = deadline_after(kLocalPatience);
    if (read_exactly(peer, protocol::writable_bytes_of(request), soon) != IoResult::done) return;
    Answer answer;
    answer.size = size_;
    const auto rank = static_cast<std::size_t>(request.rank);
    if (request.version != protocol::kVersion) {
      answer.verdict = Verdict::other_version;
    } else if (request.size != size_ || request.rank < 1 || request.rank >= size_) {
      answer.verdict = Verdict::other_size;
    } else if (given_[rank]) {
      answer.verdict = Verdict::given_before;
    } else {
      answer.verdict = Verdict::given;
      answer.id = id_;
    }
    const bool sent = write_exactly(peer, protocol::bytes_of(answer), soon) == IoResult::done;
    if (!sent || answer.verdict != Verdict::given) return;
    given_[rank] = true;
    --left_;
  }

  const FileDescriptor listener_;
  const int size_;
  const UniqueId id_;
  const Deadline deadline_;
  std::vector<bool> given_;  // by rank
  int left_;
};

}  // namespace

SocketAddress handover_address(const std::string& job) {
  // Hashed, as names are short and public and the job's may be neither.
  const auto digest = protocol::hash({}, "id hand-over", {std::as_bytes(std::span(job))});
  std::string name = fmt::format("tutti/{}/", own_user());
  for (std::size_t i = 0; i < 16; ++i) {
    name += fmt::format("{:02x}", std::to_integer<unsigned>(digest[i]));
  }
  return abstract_address(name);
}

void offer_unique_id(const std::string& job, int size, const UniqueId& id,
                     std::chrono::nanoseconds timeout) {
  if (size < 2) return;
  const Deadline deadline = deadline_after(timeout);
  const SocketAddress address = handover_address(job);
  FileDescriptor listener;
  // The name may still be taken by a rank 0 of this job that is about to end.
  while (!(listener = listen_at(address))) {
    const int error = errno;
    if (error != EADDRINUSE) throw_system_error("listening for the other ranks", error);
    if (Clock::now() >= deadline) {
      throw Error(ErrorCode::timed_out,
                  fmt::format("rank 0: another process hands out the unique id of job '{}'; if two "
                              "jobs run at once, start them with `tutti run`, or with a "
                              "TUTTI_UNIQUE_ID each",
                              job));
    }
    pause_for(kPause);
  }
  const auto offer = std::make_shared<Offer>(std::move(listener), size, id, deadline);
  run_in_background("tutti-id", [offer](int stop_fd) { offer->run(stop_fd); });
}

UniqueId fetch_unique_id(const std::string& job, int rank, int size,
                         std::chrono::nanoseconds timeout, const WhyNot& why_not) {
  const Deadline deadline = deadline_after(timeout);
  // Another job of that name may be the first to offer.
  const Deadline for_own_size =
      Clock::now() + std::min<std::chrono::nanoseconds>(kForOwnSize, timeout / 2);
  const SocketAddress address = handover_address(job);
  const std::string who = fmt::format("rank {} of {}", rank, size);
  std::string last = "rank 0 did not offer it";
  while (true) {
    std::chrono::milliseconds pause = kPause;
    if (const FileDescriptor socket = connect_to(address, deadline)) {
      if (!same_user(socket)) {
        throw Error(ErrorCode::system,
                    fmt::format("{}: user {} occupies the name under which rank 0 would hand out "
                                "the unique id of job '{}'; start it with `tutti run` instead",
                                who, peer_user(socket), job));
      }
      const pid_t zero = peer_process(socket.fd());
      if (std::string why = why_not && zero > 0 ? why_not(zero) : ""; !why.empty()) {
        last = std::move(why);
        pause = kToLookAgain;
      } else if (const auto answer = ask(socket, rank, size, deadline)) {
        switch (answer->verdict) {
          case Verdict::given:
            return answer->id;
          case Verdict::given_before:
            last = "rank 0 has given it to another process of this rank";
            break;
          case Verdict::other_size:
            last =
                fmt::format("rank 0 of job '{}' says that there are {} ranks", job, answer->size);
            if (Clock::now() < for_own_size) break;
            throw Error(ErrorCode::mismatch, fmt::format("{}: {}", who, last), 0);
          case Verdict::other_version:
            throw Error(
                ErrorCode::mismatch,
                fmt::format("{}: rank 0 of job '{}' runs another version of Tutti", who, job), 0);
        }
      }
    }
    if (Clock::now() >= deadline) {
      throw Error(
          ErrorCode::timed_out,
          fmt::format("{}: no unique id of job '{}' in time: {}; is rank 0 running, on this "
                      "host, and creating its communicator?",
                      who, job, last),
          0);
    }
    pause_for(pause);
  }
}

}  // namespace tutti
