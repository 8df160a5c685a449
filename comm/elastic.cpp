// The ranks' side of an elastic job. The launcher's is tools/run/elastic_run.h, which says how the
// rounds go.
#include "comm/elastic.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "comm/elastic_message.h"
#include "comm/impl.h"
#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/wait.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestPause = 500ms;  // before the next attempt
constexpr auto kShortestAttempt = 1s;  // of the time for all of them, an attempt gets a quarter

std::atomic<bool> there_is_one{false};
std::atomic<std::uint32_t> made_in{0};  // its process_generation()

/// A child of fork() would take what `tutti run` tells its parent.
void check_process() {
  if (made_in == process_generation()) return;
  throw Error(ErrorCode::invalid_usage,
              "this ElasticJob is of the process of which this one is a child: after fork() only "
              "the parent can use it");
}

/// The socket that the launcher has made.
int inherited_socket() {
  int kind = 0;
  socklen_t length = sizeof kind;
  const int fd = static_cast<int>(setting_integer(kElasticVariable));
  if (fd < 0) {
    throw Error(ErrorCode::invalid_usage,
                "this process is no rank of an elastic job: start it with `tutti run --elastic "
                "MIN:MAX program`");
  }
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) != 0 || kind != SOCK_SEQPACKET) {
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("{} is {}, but this process has no such socket: the program that `tutti "
                    "run --elastic` starts has to be the rank itself, or to pass its open "
                    "descriptors on",
                    kElasticVariable, fd));
  }
  return fd;
}

}  // namespace

ElasticJob::ElasticJob() : socket_(inherited_socket()) {
  if (there_is_one.exchange(true)) {
    throw Error(ErrorCode::invalid_usage, "this process has an ElasticJob already: use that one");
  }
  made_in = process_generation();
  ::fcntl(socket_, F_SETFD, FD_CLOEXEC);  // it is no business of programs that this one starts
}

ElasticJob::~ElasticJob() { there_is_one = false; }

/// Takes in what has come. True: `members` are those of round `offered`; what comes after them
/// stays, as the others try that round too.
bool ElasticJob::read(std::uint64_t offered, Members& members) {
  std::string text(kLongestElasticMessage, '\0');
  for (;;) {
    const ssize_t got = ::recv(socket_, text.data(), text.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) {
      throw Error(ErrorCode::system, "`tutti run`, which has started this rank, has ended");
    }
    auto message = decode_elastic(std::string_view(text).substr(0, static_cast<std::size_t>(got)));
    if (!message) throw Error(ErrorCode::mismatch, "`tutti run` is of another version of Tutti");
    newest_ = std::max(newest_, message->number);
    if (message->kind != ElasticMessage::Kind::members || message->number != offered) continue;
    members = {message->number, std::move(message->handles)};
    return true;
  }
}

std::uint64_t ElasticJob::number() {
  check_process();
  char nothing = 0;
  // Mostly there is nothing to read.
  if (::recv(socket_, &nothing, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN) {
    Members too_late;  // of a round that this rank has given up
    read(0, too_late);
  }
  return newest_;
}

bool ElasticJob::should_join(Communicator& comm) {
  refuse_to_meet("ElasticJob::should_join()");
  std::uint64_t newest = number();
  comm.all_reduce(&newest, &newest, 1, DataType::uint64, ReduceKind::max);
  agreed_ = newest > joined_;
  return agreed_;
}

/// Offers this rank until the launcher says which ranks meet. `failure`: of the attempt before, if
/// any.
ElasticJob::Members ElasticJob::meet(const std::string& handle, const std::string& failure,
                                     Deadline until) {
  Members members;
  std::uint64_t wanted = offered_ + 1;  // the one before is over, for this rank at least
  for (std::uint64_t offered = 0;;) {
    if (read(offered, members)) return members;
    wanted = std::max(wanted, newest_);
    if (wanted > offered) {
      const std::string offer = encode({ElasticMessage::Kind::offer, wanted, {handle}});
      if (::send(socket_, offer.data(), offer.size(), MSG_NOSIGNAL) < 0 && errno != EINTR) {
        throw_system_error("telling `tutti run` that this rank is there");
      }
      offered_ = offered = wanted;
    }
    if (!wait_for(socket_, POLLIN, until)) {
      throw Error(ErrorCode::timed_out,
                  fmt::format("no round of the elastic job has come about, the newest of which is "
                              "number {}: {}",
                              offered,
                              failure.empty() ? "some rank that is there has not called join(), or "
                                                "there are too few ranks"
                                              : failure));
    }
  }
}

void ElasticJob::join(Communicator& comm, const Options& options) {
  refuse_to_meet("ElasticJob::join()");
  check_process();
  options.check();
  const auto patience = std::chrono::nanoseconds(options.rendezvous_timeout);
  const Deadline until = deadline_after(patience);
  if (!comm) comm = Communicator::alone(options);
  // The others may be in a call.
  if (!std::exchange(agreed_, false)) comm.abort("a rank joins the next round of the elastic job");
  std::string failure;
  for (int attempt = 1;; ++attempt) {
    const Members members = meet(comm.handle(), failure, until);
    Options of_attempt = options;
    const std::chrono::nanoseconds left =
        std::max<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), 1ms);
    of_attempt.rendezvous_timeout =
        std::min(left, std::max<std::chrono::nanoseconds>(patience / 4, kShortestAttempt));
    try {
      comm = comm.reconfigure(members.handles, members.number, of_attempt);
      // A rank that gives up a moment before its time is up may leave others with a communicator.
      Call barrier;
      barrier.timeout = of_attempt.rendezvous_timeout;
      comm.run(barrier);
      comm.impl().options.rendezvous_timeout = patience;  // what is made of it has all of it again
      joined_ = members.number;
      log().info("round {} of the elastic job: rank {} of {}", joined_, comm.rank(), comm.size());
      return;
    } catch (const Error& error) {
      if (must_stop()) throw;  // Ctrl-C
      // Another attempt would meet the same arguments and settings.
      if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::mismatch) throw;
      if (std::chrono::steady_clock::now() >= until) throw;
      failure = fmt::format("round {} failed: {}", members.number, error.what());
      log().info("elastic job: {}", failure);
    }
    // Ranks that have the communicator are to hear that this rank does not.
    comm.abort(fmt::format("round {} of the elastic job has not come about", members.number));
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(attempt * 5ms, kLongestPause));
  }
}

}  // namespace tutti
