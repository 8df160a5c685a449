// Rendezvous: every rank hands in a card and gets everybody's. The server runs in the process that
// made the UniqueId; it accepts in parallel, authenticates each peer with the secret in the id
// (mutual, keyed BLAKE2b, compared in constant time), reads at most 64 bytes before that, and gives
// up at its deadline. The cards of a large job reach the ranks through a tree of ranks, so that no
// process sends them to all (rendezvous_tree.h).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/appointments.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"

namespace tutti {

/// A card is a rank's description of itself for the others: bytes without a meaning for the
/// rendezvous.
constexpr std::size_t kMaxCardBytes = 1024;

/// The cards of all ranks, in one piece, as they travel.
class Roster {
 public:
  Roster() = default;
  /// From the form that travels: the lengths of the cards, by rank, and then the cards. Nothing if
  /// `bytes` is not a roster of `size` ranks.
  static std::optional<Roster> from(std::vector<std::byte> bytes, int size);

  int size() const { return static_cast<int>(begins_.size()) - 1; }
  std::span<const std::byte> card(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(bytes_).subspan(begins_[r], begins_[r + 1] - begins_[r]);
  }

  std::array<std::byte, 32> session_secret{};  // fresh, known to these ranks alone

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> begins_{0};  // of each card within bytes_, and where the last ends
};

/// A meeting of ranks that have each other's handles, to which this rank has been called, as long
/// as this object lives (meeting_point.h).
class Reunion {
 public:
  Reunion(std::shared_ptr<Appointments> appointments,
          std::shared_ptr<const Appointments::Call> call)
      : appointments_(std::move(appointments)), call_(std::move(call)) {}
  Reunion(Reunion&&) = default;
  Reunion& operator=(Reunion&&) = delete;
  ~Reunion() {
    if (call_) appointments_->end(*call_);
  }

  const Appointment& about() const { return call_->about; }
  const std::vector<Handle>& list() const { return call_->list; }
  int rank() const { return call_->rank; }
  int size() const { return static_cast<int>(call_->list.size()); }
  /// Where the ranks meet.
  const UniqueId& id() const { return call_->list.front().id; }
  /// Readable where there is trouble().
  int descriptor() const { return call_->told.fd(); }
  std::optional<Error> trouble() const { return appointments_->trouble(*call_); }

 private:
  std::shared_ptr<Appointments> appointments_;
  std::shared_ptr<const Appointments::Call> call_;
};

/// Joins as `rank` of `size` with a card of at most kMaxCardBytes. Throws mismatch if ranks
/// disagree about the size or two claim one rank (on every rank, with both names); timed_out with
/// the missing ranks; peer_lost with a rank that died meanwhile; system if it cannot reach the
/// server or another rank. `reunion`: the ranks meet by handles, at the first one's.
Roster rendezvous(const UniqueId& id, int rank, int size, std::span<const std::byte> mine,
                  std::chrono::nanoseconds timeout, const Reunion* reunion = nullptr);

/// Rank `rank` of `size` cannot join, because of `why`: the others get that as their error, if the
/// server hears of it within a moment. Throws nothing.
void refuse_rendezvous(const UniqueId& id, int rank, int size, const Error& why,
                       const Reunion* reunion = nullptr) noexcept;

}  // namespace tutti
