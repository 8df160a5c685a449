// A session: the time from a meeting of a sending and a receiving job (meeting.h) to the death or
// leave of a rank of either. Versions of the weights go over its Reshard, one after the other.
//
// The ranks of the joint communicator are those of the sending job, and then those of the
// receiving job; the layouts of the two jobs count their own ranks from 0.
#pragma once

#include <tutti/comm/communicator.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "../reshard/layout.h"
#include "../reshard/reshard.h"
#include "meeting.h"
#include "options.h"
#include "version_coder.h"
#include "way_choice.h"

namespace tutti::parallel::weights {

class Session {
 public:
  /// Collective over both jobs, each with its own layout. The sending job's options count. Throws,
  /// on all ranks, what Reshard throws.
  Session(Meeting meeting, const reshard::Layout& own, const WeightsOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int senders() const { return senders_; }
  int receivers() const { return joint_.size() - senders_; }
  bool is_sender() const { return joint_.rank() < senders_; }

  // Of a version, in this order; collective.
  /// The number of the version that rank 0 of the sending job passes. It says, too, whether the
  /// version goes coded. `patience`: how long the others wait for it; 0: without limit.
  std::uint64_t announce(std::uint64_t version, std::chrono::nanoseconds patience);
  /// `present`: on a receiver, where it has the version before; none: in the destinations.
  void run(std::span<const void* const> sources, std::span<void* const> destinations,
           std::span<void* const> present = {});
  /// Returns when all ranks of both jobs have the version, or have sent it; throws if one of them
  /// does not come to say so. An error that it returns is of somebody who has left or died when all
  /// had said so: the session is over, and the version is good.
  std::optional<Error> confirm();

  /// Ends it for both jobs. Their calls fail with `aborted`, or, with the `death` of which this
  /// rank has heard (as named()), with that.
  void end(std::string_view reason, const std::optional<Error>& death = {});
  /// The failure that the next call would throw.
  std::optional<Error> error() const { return joint_.error(); }
  /// `error`, which then names the culprit's job and its rank there; rank() is that rank. An
  /// `aborted` after a death that another rank has heard of is that death.
  Error named(const Error& error) const;

  /// What this rank has sent in coded messages; none: there is no coder, as the link is fast.
  const CodedTraffic* traffic() const { return coder_ ? &coder_->traffic() : nullptr; }

 private:
  void agree_on_layouts(const reshard::Layout& own, reshard::Layout& from, reshard::Layout& to);
  void add_coder(const WeightsOptions& options);
  std::chrono::nanoseconds plain_time(Pace link);

  Communicator joint_;
  const int senders_;
  std::optional<reshard::Reshard> plain_;
  // Where messages between hosts may be coded: the same reshard once more, with a coder.
  std::shared_ptr<VersionCoder> coder_;
  std::optional<reshard::Reshard> coded_;
  std::optional<WayChoice> choice_;  // which of the two; none: the coded one, if there is one
  bool goes_coded_ = false;          // this version
  bool last_was_coded_ = false;      // so changes can be to that one
  std::chrono::steady_clock::time_point announced_{};
};

/// Collective: what a byte costs on the way from this rank, one of the first `senders` ranks, to
/// another host, with all of them sending at
/// once. Not known: the plan has no message from this rank to another host. Takes three megabytes
/// and some for each rank that sends.
Pace measure_link(Communicator& comm, const reshard::Plan& plan, int senders);
/// What this machine takes to code a byte of a version of which 2 % have changed, and to decode it.
Pace measure_coder();

}  // namespace tutti::parallel::weights
