#include "parallel/weights/version_coder.h"

#include <fmt/format.h>
#include <tutti/core/error.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "parallel/reshard/pack.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;  // bytes: a coder's data stay in the cache
constexpr std::size_t kMessageHeader = 2 * sizeof(std::uint64_t);
enum class MessageForm : std::uint64_t { plain = 0, blocks = 1 };

struct MessageHeader {
  std::uint64_t checksum = 0;
  MessageForm form = MessageForm::plain;
};
static_assert(sizeof(MessageHeader) == kMessageHeader);

BlockCoder& coder_of(std::map<DataType, std::unique_ptr<BlockCoder>>& coders, DataType type) {
  auto& coder = coders[type];
  if (!coder) coder = std::make_unique<BlockCoder>(type);
  return *coder;
}

[[noreturn]] void refuse_message(std::size_t number, const std::string& what) {
  throw Error(
      ErrorCode::mismatch,
      fmt::format("message {} of a version of the weights is damaged: {}. The version before "
                  "it stays; send the version again",
                  number, what));
}

/// Calls body(its run, where in the message, bytes) for each block.
template <class Runs, class Body>
void for_each_block(const Runs& runs, const Body& body) {
  std::size_t at = 0;
  for (const auto& run : runs) {
    for (std::size_t done = 0; done < run.bytes; done += kBlock) {
      const std::size_t bytes = std::min(kBlock, run.bytes - done);
      body(run, at + done, bytes);
    }
    at += run.bytes;
  }
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void VersionCoder::use(const reshard::Plan& plan, const reshard::Layout& from,
                       const reshard::Layout& to) {
  plan_ = &plan;
  from_ = &from;
  to_ = &to;
}

void VersionCoder::begin_version(bool receivers_have_the_last, std::span<void* const> present) {
  changes_ = allowed_.changes && receivers_have_the_last;
  present_ = present;
  if (!receivers_have_the_last) kept_.clear();
}

std::size_t VersionCoder::most(std::size_t plain) const {
  // Where a message has more blocks than that, of many small tensors of other types, it may go as
  // it is.
  const std::size_t blocks = plain / kBlock + 16;
  return kMessageHeader + blocks * BlockHeader::kBytes + plain;
}

std::vector<VersionCoder::Run> VersionCoder::runs_of(std::size_t number, std::size_t bytes) const {
  if (plan_ == nullptr || number >= plan_->messages.size())
    refuse_message(number, "the plan has no such");
  std::vector<Run> runs;
  std::size_t all = 0;
  for (const reshard::Move& move : plan_->moves_of(plan_->messages[number])) {
    const DataType type = reshard::travel_type(*from_, *to_, *plan_, move);
    const bool is_exact = to_->tensors[move.tensor].type == type;
    const std::size_t of_move = move.box.elements() * size_of(type);
    all += of_move;
    if (!runs.empty() && runs.back().type == type && runs.back().is_exact == is_exact) {
      runs.back().bytes += of_move;
    } else {
      runs.push_back({type, is_exact, of_move});
    }
  }
  if (all != bytes) refuse_message(number, fmt::format("it has {} bytes of {}", bytes, all));
  return runs;
}

Ways VersionCoder::ways() {
  return {.changes = changes_ && for_changes_.keeps_up_with(link_),
          .planes = allowed_.planes && for_planes_.keeps_up_with(link_)};
}

/// Encodes a block to the front of `to`, which becomes the rest of it; false: it does not fit.
/// `before` becomes `now`, but where it does not fit.
bool VersionCoder::encode_block(BlockCoder& coder, std::span<const std::byte> now,
                                std::span<std::byte> before, std::span<std::byte>& to) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const BlockHeader header = coder.encode(now, changes_ ? before : std::span<std::byte>{}, ways());
  const auto content = coder.content();
  if (BlockHeader::kBytes + content.size() > to.size()) return false;
  std::ranges::copy(header.encoded(), to.begin());
  std::memcpy(to.data() + BlockHeader::kBytes, content.data(), content.size());
  to = to.subspan(BlockHeader::kBytes + content.size());
  const bool as_a_whole = header.form == BlockForm::planes || header.form == BlockForm::plain;
  if (!before.empty() && as_a_whole) std::memcpy(before.data(), now.data(), now.size());
  if (!before.empty() && !as_a_whole) coder.decode(header, content, before);
  if (header.form == BlockForm::planes) for_planes_.add(Clock::now() - start, now.size());
  if (!as_a_whole) for_changes_.add(Clock::now() - start, now.size());
  ++traffic_.blocks[static_cast<std::size_t>(header.form)];
  return true;
}

std::size_t VersionCoder::encode(std::size_t number, std::span<const std::byte> plain,
                                 std::span<std::byte> coded) {
  std::vector<std::byte>& kept = kept_[number];
  if (allowed_.changes) kept.resize(plain.size());
  MessageHeader header{checksum_of(plain), MessageForm::blocks};
  auto to = coded.first(most(plain.size())).subspan(kMessageHeader);
  bool fits = true;
  for_each_block(
      runs_of(number, plain.size()), [&](const Run& run, std::size_t at, std::size_t bytes) {
        const auto before = kept.empty() || !run.is_exact ? std::span<std::byte>{}
                                                          : std::span(kept).subspan(at, bytes);
        fits = fits &&
               encode_block(coder_of(encoders_, run.type), plain.subspan(at, bytes), before, to);
      });
  std::size_t size = most(plain.size()) - to.size();
  if (!fits) {
    header.form = MessageForm::plain;
    std::ranges::copy(plain, coded.begin() + kMessageHeader);
    if (!kept.empty()) std::ranges::copy(plain, kept.begin());
    size = kMessageHeader + plain.size();
    ++traffic_.blocks[static_cast<std::size_t>(BlockForm::plain)];
  }
  std::memcpy(coded.data(), &header, sizeof header);
  traffic_.plain += plain.size();
  traffic_.coded += size;
  return size;
}

void VersionCoder::decode(std::size_t number, std::span<const std::byte> coded,
                          std::span<std::byte> plain) {
  if (coded.size() < kMessageHeader) refuse_message(number, "it has no header");
  MessageHeader header;
  std::memcpy(&header, coded.data(), sizeof header);
  coded = coded.subspan(kMessageHeader);
  if (header.form == MessageForm::plain) {
    if (coded.size() != plain.size()) {
      refuse_message(number, fmt::format("it has {} bytes of {}", coded.size(), plain.size()));
    }
    std::ranges::copy(coded, plain.begin());
  } else if (header.form == MessageForm::blocks) {
    if (changes_ && !present_.empty() && number < plan_->messages.size()) {
      pack_present(*from_, *to_, *plan_, plan_->messages[number], {.destinations = present_},
                   plain.data());
    }
    decode_blocks(number, coded, plain);
  } else {
    refuse_message(number, "its form is unknown");
  }
  if (checksum_of(plain) != header.checksum) refuse_message(number, "its checksum is another one");
}

void VersionCoder::decode_blocks(std::size_t number, std::span<const std::byte> coded,
                                 std::span<std::byte> plain) {
  for_each_block(
      runs_of(number, plain.size()), [&](const Run& run, std::size_t at, std::size_t bytes) {
        if (coded.size() < BlockHeader::kBytes)
          refuse_message(number, "it ends before its last block");
        const auto header = BlockHeader::decoded(coded.first<BlockHeader::kBytes>(), bytes);
        coded = coded.subspan(BlockHeader::kBytes);
        if (header.bytes > coded.size()) {
          refuse_message(number, fmt::format("a block has {} bytes, and {} are left", header.bytes,
                                             coded.size()));
        }
        const bool changes = header.form != BlockForm::plain && header.form != BlockForm::planes;
        if (changes && !(changes_ && run.is_exact))
          refuse_message(number, "it has changes to a version that is not here");
        coder_of(decoders_, run.type)
            .decode(header, coded.first(header.bytes), plain.subspan(at, bytes));
        coded = coded.subspan(header.bytes);
      });
  if (!coded.empty()) refuse_message(number, fmt::format("{} bytes are left over", coded.size()));
}

}  // namespace tutti::parallel::weights
