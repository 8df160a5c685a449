// Both sides of PyTorch's TCPStore. A server that answers anything: the client has a value of
// bounded length, or an error. A client that asks for anything: the server that rank 0 opens hands
// out its value, which is a secret, only for the right question.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "bootstrap/torch_store.h"
#include "tests/fuzz/target.h"
#include "transport/sockets/socket.h"

namespace tutti::fuzz::torch_stores {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::string_view kKey = "tutti/id", kValue = "the value, which is secret";

std::uint16_t port_of(const FileDescriptor& listener) {
  const std::string text = to_string(bound_address(listener));
  return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
}

/// Answers all who come with the same bytes, and hangs up.
class Answerer {
 public:
  Answerer() : listener_(listen_at(*parse_address("127.0.0.1", 0))), port_(port_of(listener_)) {
    std::thread([this] {
      while (wait_for(listener_.fd(), POLLIN, Deadline::max())) {
        const FileDescriptor socket = accept_from(listener_);
        if (!socket) continue;
        const std::lock_guard lock(mutex_);
        write_exactly(socket, bytes_in(answer_), deadline_after(kPatience));
        ::shutdown(socket.fd(), SHUT_WR);
        char rest[4096];
        while (wait_for(socket.fd(), POLLIN, deadline_after(kPatience)) &&
               ::recv(socket.fd(), rest, sizeof rest, 0) > 0) {
        }
      }
    }).detach();
  }
  void set(std::string_view answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
  }
  std::uint16_t port() const { return port_; }

 private:
  const FileDescriptor listener_;
  const std::uint16_t port_;
  std::mutex mutex_;
  std::string answer_;
};

void client(std::string_view answer) {
  static auto& answerer = *new Answerer;  // its thread is never joined
  // Who is turned away at once asks again, in time.
  answerer.set(answer.empty() ? std::string_view("\1") : answer);
  const auto store = torch_store("127.0.0.1", answerer.port());
  std::string value;
  if (accepts(ErrorCode::system,
              [&] { value = store->get(std::string(kKey), deadline_after(kPatience)); })) {
    require(answer.size() >= 9 && answer.substr(9).starts_with(value) && value.size() <= 4096,
            "a value is what the server said");
  }
  accepts(ErrorCode::system, [&] { store->put("key", "value", deadline_after(kPatience)); });
  store->remove("key");
}

void server(std::string_view question) {
  static std::uint16_t port = port_of(listen_at(*parse_address("127.0.0.1", 0)));
  static const auto store = [] {
    auto made = torch_server("127.0.0.1", port);
    made->put(std::string(kKey), std::string(kValue), deadline_after(std::chrono::hours(24)));
    return made;
  }();
  const FileDescriptor socket =
      connect_to(*parse_address("127.0.0.1", port), deadline_after(kPatience));
  require(static_cast<bool>(socket), "it is there");
  write_exactly(socket, bytes_in(question), deadline_after(kPatience));
  ::shutdown(socket.fd(), SHUT_WR);
  std::string heard;
  char piece[4096];
  while (wait_for(socket.fd(), POLLIN, deadline_after(kPatience))) {
    const ssize_t got = ::recv(socket.fd(), piece, sizeof piece, 0);
    if (got <= 0) break;
    heard.append(piece, static_cast<std::size_t>(got));
  }
  if (question.find(torch_get_request(std::string(kKey))) == question.npos)
    require(heard.find(kValue) == heard.npos, "who does not ask for it does not get it");
}

void run(std::string_view input) {
  Input in(input);
  if (in.byte() % 2 == 0) return client(in.rest().substr(0, 8192));
  server(in.rest().substr(0, 4096));
}

std::vector<std::string> seeds() {
  const std::string key(kKey);
  const std::string greeting = "\1" + std::string(kTorchGreeting);
  return {std::string(2, '\0') + torch_text("a value"),
          std::string("\0\1", 2),
          std::string(2, '\0') + text_of_bytes(UINT64_MAX) + "x",
          greeting + torch_wait_request(key) + torch_get_request(key),
          greeting + torch_get_request("other"),
          "\1GET / HTTP/1.1\r\n\r\n"};
}

const Registered target({"torch_stores", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::torch_stores
