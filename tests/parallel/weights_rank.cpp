// A rank of one of two jobs between which weights go, for process ranks:
//
//     weights_rank send FOLDER FIRST    sends versions FIRST, FIRST + 1, ... until its job ends
//     weights_rank receive FOLDER LAST  receives, and leaves with a version from LAST on
//
// Each line of output says what a rank has at which time (of the steady clock, in ns). A rank that
// receives looks at every element of every version, and of what it has after an error. Ranks whose
// job is whole go on after an error; those of a job that has lost a rank say what they have and
// end.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "core/error.h"
#include "parallel/reshard/buffers.h"
#include "parallel/weights/receiver.h"
#include "parallel/weights/sender.h"
#include "tests/parallel/weights_model.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;

constexpr std::uint64_t kRows = 384;  // 3 MB in four matrices

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string line =
      fmt::format("{} ", now) + fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

weights::WeightsOptions options() {
  weights::WeightsOptions o;
  o.always = true;
  o.message_bytes = 256 << 10;
  o.patience = std::chrono::seconds(30);
  return o;
}

/// Whether a rank of this job has died, by what another call on its communicator says.
bool job_is_whole(Communicator& job) { return !job.error(); }

int send(Communicator& job, const std::string& folder, std::uint64_t version) {
  const reshard::Layout layout = test::senders_layout(job.size(), kRows);
  reshard::Buffers buffers(layout, job.rank());
  weights::Sender sender(job, layout, weights::folder_place(folder), options());
  int receivers = 0;
  for (;; ++version) {
    test::fill_version(layout, job.rank(), buffers.pointers(), version);
    try {
      const weights::Sent sent = sender.send(version, buffers.sources());
      if (sent.receivers != receivers) say("SENDS {} to {}", version, sent.receivers);
      receivers = sent.receivers;
    } catch (const Error& e) {
      say("LOST {} {}: {}", name(e.code()), e.rank(), e.what());
      if (!job_is_whole(job)) return 0;
    }
    if (receivers == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Says whether this rank has version() and nothing else; ranks that have the same job compare.
bool look(Communicator& job, int layout_rank, const reshard::Layout& layout,
          const weights::Receiver& receiver, const char* word) {
  const std::uint64_t version = receiver.version();
  const std::uint64_t wrong =
      test::wrong_elements(layout, layout_rank, receiver.pointers(), version);
  say("{} {} wrong {}", word, version, wrong);
  std::uint64_t least = version, most = version;
  job.all_reduce(&least, &least, 1, DataType::uint64, ReduceKind::min);
  job.all_reduce(&most, &most, 1, DataType::uint64, ReduceKind::max);
  if (least != most) say("MIXTURE of {} and {}", least, most);
  return wrong == 0 && least == most;
}

int receive(Communicator& job, const std::string& folder, std::uint64_t last) {
  const reshard::Layout layout = test::receivers_layout(job.size(), kRows);
  const int rank = job.rank();
  weights::Receiver receiver(job, layout, weights::folder_place(folder), options());
  bool right = true;
  while (receiver.version() < last) {
    try {
      receiver.receive();
      right = look(job, rank, layout, receiver, "HAS") && right;
    } catch (const Error& e) {
      say("LOST {} {}: {}", name(e.code()), e.rank(), e.what());
      if (job_is_whole(job)) {
        right = look(job, rank, layout, receiver, "KEEPS") && right;
        continue;
      }
      Communicator left = job.shrink(std::vector<int>{job.error()->rank()});
      receiver.resume(left);
      return look(left, rank, layout, receiver, "SETTLED") && right ? 0 : 1;
    }
  }
  receiver.leave();
  say("LEAVES {}", receiver.version());
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  Communicator job = Communicator::from_environment();
  say("READY {}", job.rank());
  const std::uint64_t number = std::strtoull(argv[3], nullptr, 10);
  return argv[1] == std::string("send") ? send(job, argv[2], number)
                                        : receive(job, argv[2], number);
}
