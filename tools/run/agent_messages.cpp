// See agent_messages.h.
#include "tools/run/agent_messages.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 20;
constexpr int kMostHosts = 1 << 20;

struct FrameHeader {
  std::uint32_t bytes = 0;  // of the text
  std::uint32_t kind = 0;
  std::int32_t host = 0, number = 0, value = 0;
};
static_assert(sizeof(FrameHeader) == 20);

[[noreturn]] void refuse_message() {
  throw Error(ErrorCode::mismatch, "what comes from it is no message of `tutti run`");
}

class Packer {
 public:
  void add(int number) {
    const auto value = static_cast<std::int32_t>(number);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add(std::string_view text) {
    add(static_cast<int>(text.size()));
    text_ += text;
  }
  void add(const std::vector<std::string>& texts) {
    add(static_cast<int>(texts.size()));
    for (const std::string& text : texts) add(text);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : rest_(text) {}

  int number() {
    std::int32_t value = 0;
    if (rest_.size() < sizeof value) refuse_message();
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  /// A count of parts; each part has at least `least` bytes.
  std::size_t count(std::size_t least) {
    const int value = number();
    if (value < 0 || static_cast<std::size_t>(value) > rest_.size() / least) refuse_message();
    return static_cast<std::size_t>(value);
  }
  std::string text() {
    const std::size_t size = count(1);
    std::string result(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return result;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> result(count(sizeof(std::int32_t)));
    for (std::string& text : result) text = this->text();
    return result;
  }
  void expect_end() const {
    if (!rest_.empty()) refuse_message();
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string encode(const Message& message) {
  const FrameHeader header{static_cast<std::uint32_t>(message.text.size()),
                           static_cast<std::uint32_t>(message.kind), message.host, message.number,
                           message.value};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes += message.text;
}

std::optional<Message> MessageReader::next() {
  FrameHeader header;
  const std::size_t left = pending_.size() - read_;
  if (left >= sizeof header) {
    std::memcpy(&header, pending_.data() + read_, sizeof header);
    if (header.kind < 1 || header.kind > static_cast<std::uint32_t>(MessageKind::last) ||
        header.bytes > kLongestText) {
      refuse_message();
    }
    if (left - sizeof header >= header.bytes) {
      Message message{static_cast<MessageKind>(header.kind), header.host, header.number,
                      header.value, pending_.substr(read_ + sizeof header, header.bytes)};
      read_ += sizeof header + header.bytes;
      return message;
    }
  }
  pending_.erase(0, read_);
  read_ = 0;
  return std::nullopt;
}

std::string encode(const JobDescription& job) {
  Packer packer;
  packer.add(job.id);
  packer.add(job.size);
  packer.add(int{job.tag});
  packer.add(int{job.bind_cores});
  packer.add(int{job.windows});
  packer.add(int{job.elastic});
  packer.add(job.program);
  packer.add(job.variables);
  packer.add(job.folder);
  packer.add(job.connect);
  packer.add(job.tutti);
  packer.add(job.fan_out);
  packer.add(static_cast<int>(job.hosts.size()));
  for (const HostShare& host : job.hosts) {
    packer.add(host.name);
    packer.add(host.number);
    packer.add(host.first_rank);
    packer.add(host.ranks);
  }
  return packer.take();
}

JobDescription decode_job(std::string_view text) {
  Unpacker unpacker(text);
  JobDescription job;
  job.id = unpacker.text();
  job.size = unpacker.number();
  job.tag = unpacker.number() != 0;
  job.bind_cores = unpacker.number() != 0;
  job.windows = unpacker.number() != 0;
  job.elastic = unpacker.number() != 0;
  job.program = unpacker.texts();
  job.variables = unpacker.texts();
  job.folder = unpacker.text();
  job.connect = unpacker.texts();
  job.tutti = unpacker.text();
  job.fan_out = unpacker.number();
  job.hosts.resize(unpacker.count(4 * sizeof(std::int32_t)));
  for (HostShare& host : job.hosts) {
    host.name = unpacker.text();
    host.number = unpacker.number();
    host.first_rank = unpacker.number();
    host.ranks = unpacker.number();
    const bool right = host.number >= 0 && host.number < kMostHosts && host.first_rank >= 0 &&
                       host.ranks >= 0 && host.first_rank <= job.size &&
                       host.ranks <= job.size - host.first_rank;
    if (!right) refuse_message();
  }
  unpacker.expect_end();
  if (job.program.empty() || job.connect.empty() || job.fan_out < 1 || job.hosts.empty()) {
    refuse_message();
  }
  return job;
}

std::string agent_greeting() { return fmt::format("{}{}\n", kAgentGreeting, TUTTI_VERSION); }

}  // namespace tutti
