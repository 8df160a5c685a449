// See frames.h.
#include "bootstrap/frames.h"

#include <sys/socket.h>

#include <cerrno>

namespace tutti::protocol {
namespace {

Bytes32 mac_of(const Session& session, std::span<const std::byte> head_and_payload) {
  return session.mac("frame", {head_and_payload});
}

}  // namespace

Buffer frame(const Session& session, FrameType type,
             std::initializer_list<std::span<const std::byte>> payload) {
  FrameReader::Head head;
  head.type = type;
  std::vector<std::byte> bytes(sizeof head);
  for (const auto part : payload) bytes.insert(bytes.end(), part.begin(), part.end());
  head.bytes = static_cast<std::uint32_t>(bytes.size() - sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  const Bytes32 mac = mac_of(session, bytes);
  bytes.insert(bytes.end(), mac.begin(), mac.end());
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

FrameResult FrameReader::read(const FileDescriptor& socket, const Session& session) {
  if (received_ == bytes_.size()) {  // the first frame, or the one after a whole one
    bytes_.resize(sizeof head_);
    received_ = 0;
  }
  const auto progress = [&] { return read_more(socket, bytes_, received_); };
  if (bytes_.size() == sizeof head_) {
    const ReadResult result = progress();
    if (result == ReadResult::more) return FrameResult::more;
    if (result == ReadResult::closed) return FrameResult::closed;
    std::memcpy(&head_, bytes_.data(), sizeof head_);
    if (head_.bytes > kMaxPayload) return FrameResult::wrong;
    bytes_.resize(sizeof head_ + head_.bytes + sizeof(Bytes32));
  }
  const ReadResult result = progress();
  if (result == ReadResult::more) return FrameResult::more;
  if (result == ReadResult::closed) return FrameResult::closed;
  Bytes32 mac;
  const auto authenticated = std::span(bytes_).first(sizeof head_ + head_.bytes);
  std::memcpy(mac.data(), bytes_.data() + authenticated.size(), mac.size());
  return equal(mac, mac_of(session, authenticated)) ? FrameResult::whole : FrameResult::wrong;
}

bool Outbox::send(const FileDescriptor& socket) {
  while (!buffers_.empty()) {
    const auto rest = std::span(*buffers_.front()).subspan(sent_);
    const ssize_t sent = ::send(socket.fd(), rest.data(), rest.size(),
                                MSG_NOSIGNAL | (buffers_.size() > 1 ? MSG_MORE : 0));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ < buffers_.front()->size()) continue;
    buffers_.pop_front();
    sent_ = 0;
  }
  return true;
}

}  // namespace tutti::protocol
