#include "transport/host/control_copy.h"

#include <chrono>
#include <cstdint>
#include <cstring>

namespace tutti {
namespace {

/// Unsigned, as are ages: whatever was said, a difference is a number.
std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

class Writer {
 public:
  void word(std::uint64_t value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  void remark(const Remark& remark, bool timed = false) {
    const auto said = remark.read();
    word(said ? 1 : 0);
    if (!said) return;
    word(timed ? now_ns() - said->number : said->number);
    word(said->text.size());
    const auto* p = reinterpret_cast<const std::byte*>(said->text.data());
    bytes_.insert(bytes_.end(), p, p + said->text.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t word() {
    std::uint64_t value = 0;
    if (bytes_.size() < sizeof value) {
      right_ = false;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  /// A count that may be at most `most`.
  std::size_t count(std::size_t most) {
    const std::uint64_t value = word();
    if (value > most) right_ = false;
    return right_ ? static_cast<std::size_t>(value) : 0;
  }
  void remark(Remark* to, bool timed = false) {
    if (word() == 0) return;
    const std::uint64_t number = word();
    const std::size_t length = count(Remark::kMostText);
    if (!right_ || bytes_.size() < length) {
      right_ = false;
      return;
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    if (to != nullptr) to->say(timed ? now_ns() - number : number, text);
  }
  bool right() const { return right_; }
  bool at_end() const { return right_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool right_ = true;
};

constexpr auto kRelaxed = std::memory_order_relaxed;

void write(Writer& out, const OperationRecords& from) {
  struct Record {
    std::uint64_t sequence;
    std::array<std::uint64_t, 3> words;
  };
  std::vector<Record> records;
  for (const OperationRecord& r : from) {
    Record record{r.sequence.load(std::memory_order_acquire), {}};
    for (std::size_t w = 0; w < 3; ++w)
      record.words[w] = r.words[w].load(std::memory_order_acquire);
    // One that is being rewritten is left out.
    if (record.sequence != 0 && r.sequence.load(kRelaxed) == record.sequence) {
      records.push_back(record);
    }
  }
  out.word(records.size());
  for (const Record& r : records) {
    out.word(r.sequence);
    for (const std::uint64_t w : r.words) out.word(w);
  }
}

/// Stores what it reads in `to`, unless that is null.
void read(Reader& in, OperationRecords* to) {
  const std::size_t records = in.count(kRecords);
  for (std::size_t r = 0; r < records; ++r) {
    const std::uint64_t sequence = in.word();
    std::uint64_t words[3];
    for (auto& w : words) w = in.word();
    if (to == nullptr) continue;
    OperationRecord& record = (*to)[sequence % kRecords];
    record.sequence.store(0, kRelaxed);
    for (std::size_t w = 0; w < 3; ++w) record.words[w].store(words[w], std::memory_order_release);
    record.sequence.store(sequence, std::memory_order_release);
  }
}

/// Reads all of it; stores what it reads in `to`, unless that is null.
bool read(std::span<const std::byte> bytes, ControlBlock* to) {
  Reader in(bytes);
  const std::uint64_t progress = in.word();
  const auto waits_for = static_cast<std::uint32_t>(in.count(UINT32_MAX));
  const std::uint64_t age = in.word();
  if (to != nullptr) {
    to->progress.store(progress, kRelaxed);
    to->waits_for.store(waits_for, kRelaxed);
    to->waited_at.store(static_cast<std::int64_t>(now_ns() - age), kRelaxed);
  }
  for (std::size_t s = 0; s < ControlBlock::kSeries; ++s) {
    read(in, to == nullptr ? nullptr : &to->records[s]);
  }
  const std::uint64_t uneven = in.word();
  const std::size_t blocks = in.count(UnevenCounts::kBlocks);
  if (to != nullptr) to->uneven.sequence.store(0, kRelaxed);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint64_t ins = in.word(), outs = in.word();
    if (to == nullptr) continue;
    to->uneven.in[b].store(ins, std::memory_order_release);
    to->uneven.out[b].store(outs, std::memory_order_release);
  }
  if (to != nullptr) to->uneven.sequence.store(uneven, std::memory_order_release);
  in.remark(to == nullptr ? nullptr : &to->refused);
  in.remark(to == nullptr ? nullptr : &to->waiting, true);
  in.remark(to == nullptr ? nullptr : &to->elsewhere, true);
  in.remark(to == nullptr ? nullptr : &to->announced);
  return in.at_end();
}

}  // namespace

std::vector<std::byte> control_to_bytes(const ControlBlock& from) {
  Writer out;
  out.word(from.progress.load(kRelaxed));
  out.word(from.waits_for.load(kRelaxed));
  out.word(now_ns() - static_cast<std::uint64_t>(from.waited_at.load(kRelaxed)));
  for (const OperationRecords& records : from.records) write(out, records);
  const std::uint64_t uneven = from.uneven.sequence.load(std::memory_order_acquire);
  out.word(uneven);
  out.word(uneven != 0 ? UnevenCounts::kBlocks : 0);
  for (std::size_t b = 0; uneven != 0 && b < UnevenCounts::kBlocks; ++b) {
    out.word(from.uneven.in[b].load(std::memory_order_acquire));
    out.word(from.uneven.out[b].load(std::memory_order_acquire));
  }
  out.remark(from.refused);
  out.remark(from.waiting, true);
  out.remark(from.elsewhere, true);
  out.remark(from.announced);
  return out.take();
}

bool control_from_bytes(std::span<const std::byte> bytes, ControlBlock& to) {
  return read(bytes, nullptr) && read(bytes, &to);
}

}  // namespace tutti
