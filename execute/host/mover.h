// The data of a call on the host: where the operands of its steps lie, and how they are combined.
// Slots and this rank's own memory are all that it knows; other ranks' memory is peer_memory.h's,
// and what need not go through slots remote_links.h's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/combine.h"
#include "execute/host/condition.h"
#include "execute/host/write_trial.h"
#include "execute/program.h"
#include "execute/signature.h"

namespace tutti {

/// A call, ready to run.
struct Binding : BoundCall {
  Condition* condition = nullptr;  // instead of a plan: the call is over when it holds
  /// The plan, compiled; none: each tile is, when it comes.
  std::shared_ptr<const Programs> programs;
  Signature signature;
  std::uint32_t tag = 0;                // that its messages carry
  std::chrono::nanoseconds timeout{0};  // of this call; 0: the policy's
  bool unchanged = false;               // publish_sequence() is enough
  Tiling tiling;
  bool buffers = false;  // of other ranks' memory the plan addresses the user's, not tmp alone
  bool pulled = false;   // a send: the receiver copies from this rank's memory
  bool stream = false;   // results are larger than the cache: write past it
  // Of a compressed plan: where what its sums lose is noted, by element of `out`, so many times.
  float* left_out = nullptr;
  float left_out_times = 1;
  std::shared_ptr<WriteTrial> trial;  // of the calls so bound; none: `stream` is right
};

/// Memory that a rank's operations share, one after the other: tmp, staging for copies from and to
/// other processes, and staged buffers. Grows until release().
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();
  enum Use { kTmp, kCopies, kInput, kOutput, kUses };
  /// At least `bytes`, in a window.
  std::byte* reserve(Use use, std::size_t bytes);
  std::size_t bytes() const;
  /// Frees all of it, between operations.
  void release();

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  std::array<Piece, kUses> pieces_;
};

class Mover {
 public:
  Mover(int ranks, Workspace& workspace) : ranks_(ranks), workspace_(workspace) {}

  /// For calls with the plan, the type and the operator of `binding`.
  void set_up(const Binding& binding);
  /// For one such call, which outlives its run. `stream`: its results are written past the cache.
  void bind(const Binding& binding, bool stream) {
    binding_ = &binding;
    stream_ = stream;
    if (tmp_bytes_ > 0) tmp_ = workspace_.reserve(Workspace::kTmp, tmp_bytes_);
  }
  const Binding& binding() const { return *binding_; }
  std::size_t element_bytes() const { return element_; }
  std::span<std::byte> tmp() const { return {tmp_bytes_ > 0 ? tmp_ : nullptr, tmp_bytes_}; }
  bool writes_past_cache() const { return stream_; }
  /// Of the messages of the next moves.
  void write_messages_past_cache(bool past) { past_cache_ = past; }

  /// Where an operand lies that is no other rank's. `shift`: where the tile begins, in bytes from
  /// where tile 0 does.
  std::byte* pointer(const Action& action, const CompiledOperand& operand, std::size_t shift) const;
  /// A move among such operands.
  void move(const Action& action, const Move& move, std::size_t shift);

  // For moves with other operands. Their places are put into operands(), then scaled, then
  // combined.
  struct Operands {
    void** destinations;
    Source* sources;
  };
  /// Room for those of `move`, kept from move to move.
  Operands operands(const Move& move);
  /// Scales raw inputs as the operator wants, all by this rank's scalar.
  void scale_sources(const Move& move);
  bool scales(const Move& move) const { return move.scaled && scales_; }
  /// Whether it is a copy, bit for bit.
  bool is_copy(const Action& action, const Move& move) const {
    return move.sources == 1 && !scales(move) && !(action.completes && divides_);
  }
  CombineOptions combine_options(const Action& action) const;
  void combine(const Action& action, const Move& move, CombineOptions& options);
  /// The first `destinations` of them, `elements` of what the move has.
  void combine_elements(const Move& move, std::size_t destinations, std::size_t elements,
                        const CombineOptions& options);

 private:
  void move_combined(const Action& action, const Move& move, std::size_t shift);
  /// Where Binding::left_out has the elements of `out` that a compressed move completes; null: it
  /// completes none there.
  float* left_out(const Action& action, const Move& move) const;

  const int ranks_;
  Workspace& workspace_;
  const Binding* binding_ = nullptr;
  std::size_t element_ = 1;
  std::size_t tmp_bytes_ = 0;
  std::byte* tmp_ = nullptr;
  Combiner combine_{DataType::uint8, ReduceKind::sum};
  bool scales_ = false;   // the operator multiplies or divides what it reads
  bool divides_ = false;  // it divides the result
  bool canonical_ = false;
  bool stream_ = false;
  bool past_cache_ = false;  // messages are written past the cache
  // Of the move at hand; kept for their capacity.
  std::vector<void*> destinations_;
  std::vector<Source> sources_;
  std::vector<unsigned char> not_plain_sources_;  // a 1 for each that is not
};

inline std::byte* Mover::pointer(const Action& action, const CompiledOperand& p,
                                 std::size_t shift) const {
  const auto link = static_cast<std::size_t>(p.rank);
  switch (p.where) {
    case CompiledOperand::in:
      return binding_->in.base + p.offset + shift;
    case CompiledOperand::out:
      return binding_->out.base + p.offset + shift;
    case CompiledOperand::send:
      return action.sends[link].link->slot(action.bytes_out) + p.offset;
    case CompiledOperand::receive:
      // Only read; sources and destinations share the type of their pointers.
      return const_cast<std::byte*>(action.receives[link].link->slot(action.bytes_in)) + p.offset;
    default:
      return tmp_ + p.offset;
  }
}

/// Up to a cache line, as memcpy() does it, without the way there.
inline void copy_line(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto ends = [&](auto word) {  // the first and the last so many bytes, which may overlap
    auto last = word;
    std::memcpy(&word, from, sizeof word);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &word, sizeof word);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  struct Half {
    std::uint64_t words[4];
  };
  struct Quarter {
    std::uint64_t words[2];
  };
  if (bytes >= sizeof(Half)) return ends(Half{});
  if (bytes >= sizeof(Quarter)) return ends(Quarter{});
  if (bytes >= 8) return ends(std::uint64_t{});
  if (bytes >= 4) return ends(std::uint32_t{});
  for (std::size_t k = 0; k < bytes; ++k) to[k] = from[k];
}

inline void Mover::move(const Action& action, const Move& m, std::size_t shift) {
  const std::size_t bytes = m.elements * element_;
  if (bytes > kCacheLine || m.format != Format::plain || !is_copy(action, m)) {
    return move_combined(action, m, shift);
  }
  const CompiledOperand* const operands = m.operands;
  const std::byte* const from = pointer(action, operands[m.destinations], shift);
  for (std::size_t k = 0; k < m.destinations; ++k) {
    std::byte* const to = pointer(action, operands[k], shift);
    if (to != from) copy_line(to, from, bytes);
  }
}

}  // namespace tutti
