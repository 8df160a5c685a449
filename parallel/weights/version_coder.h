// The coder of one rank for the versions of a model that go over one Reshard: lossless, with a
// checksum of each message, so that the receiver has the bits of the sender or an error.
//
// The sender keeps a copy of each message of the version before (as much memory as it sends). The
// receiver has that version, in other buffers than those where the new one goes. So a message is a
// list of blocks, each as its changes, as planes, or as it is (block.h).
//
// A coded message: the checksum of its elements (XXH3, 8 bytes), how it goes on (8 bytes), and then
// for each block a header and its content; or, if that were no shorter, the elements.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "../reshard/reshard.h"
#include "block.h"
#include "pace.h"

namespace tutti::parallel::weights {

/// Of a message's elements.
std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// What the coder of a rank has sent.
struct CodedTraffic {
  std::uint64_t plain = 0;                          // bytes of the elements
  std::uint64_t coded = 0;                          // on the link
  std::array<std::uint64_t, kBlockForms> blocks{};  // by BlockForm
};

class VersionCoder final : public reshard::Coder {
 public:
  /// `link`: what a byte costs on the link; not known: the ways are used whatever they cost.
  explicit VersionCoder(Ways allowed, Pace link = {}) : allowed_(allowed), link_(link) {}

  /// Before the first message: what the messages of the plan consist of. The three outlive this.
  void use(const reshard::Plan& plan, const reshard::Layout& from, const reshard::Layout& to);
  /// Before each version, on all ranks alike: whether the receivers have the version that was sent
  /// before through this coder. `present`: on a receiver, by buffer of the layout, where it has it;
  /// none: in the places where the new one goes.
  void begin_version(bool receivers_have_the_last, std::span<void* const> present = {});

  std::size_t most(std::size_t plain) const override;
  std::size_t encode(std::size_t number, std::span<const std::byte> plain,
                     std::span<std::byte> coded) override;
  void decode(std::size_t number, std::span<const std::byte> coded,
              std::span<std::byte> plain) override;
  bool wants_present() const override { return changes_ && present_.empty(); }

  const CodedTraffic& traffic() const { return traffic_; }

 private:
  /// Elements of one type that follow each other in a message.
  struct Run {
    DataType type;
    bool is_exact;  // the receiver has it in that type, so it has the bits of the version before
    std::size_t bytes;
  };
  std::vector<Run> runs_of(std::size_t number, std::size_t bytes) const;
  void decode_blocks(std::size_t number, std::span<const std::byte> coded,
                     std::span<std::byte> plain);
  Ways ways();
  bool encode_block(BlockCoder& coder, std::span<const std::byte> now, std::span<std::byte> before,
                    std::span<std::byte>& to);

  const Ways allowed_;
  const Pace link_;
  const reshard::Plan* plan_ = nullptr;
  const reshard::Layout* from_ = nullptr;
  const reshard::Layout* to_ = nullptr;
  bool changes_ = false;  // in this version
  std::span<void* const> present_;
  Pace for_changes_, for_planes_;
  std::map<std::size_t, std::vector<std::byte>> kept_;  // of the version before, by message
  std::map<DataType, std::unique_ptr<BlockCoder>> encoders_, decoders_;
  CodedTraffic traffic_;
};

}  // namespace tutti::parallel::weights
