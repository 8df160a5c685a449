// Texts that bring ranks together, which users, files and launchers' stores hand on: unique ids,
// handles, the cards of meetings, elastic messages, what a program is. Each is the same when it is
// written again, or refused; no message shows a secret.
#include "bootstrap/handle.h"
#include "bootstrap/kinship.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/unique_id.h"
#include "comm/elastic_message.h"
#include "parallel/weights/meeting.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::ids {
namespace {

using parallel::weights::MeetingCard;

void run(std::string_view input) {
  UniqueId id;
  const bool is_hex =
      accepts(ErrorCode::invalid_argument, [&] { id = unique_id_from_string(input); });
  if (!is_hex && input.size() >= sizeof id.bytes)
    std::memcpy(id.bytes.data(), input.data(), sizeof id.bytes);
  try {
    const protocol::Ticket ticket = protocol::decode(id);
    require(protocol::encode(ticket).bytes == id.bytes, "an id is written the same");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::invalid_argument, "an id is refused as an argument");
    const std::string_view said = error.what(), piece = input.substr(input.size() / 2, 16);
    const bool is_digits =
        piece.size() == 16 && piece.find_first_not_of("0123456789abcdefABCDEF") == piece.npos;
    require(!is_digits || said.find(piece) == said.npos, "an error does not show the id");
  }
  if (const auto handle = Handle::from(input)) {
    require(handle->text() == input, "a handle is written the same");
    require(!handle->process().empty(), "its process has a text");
  }
  if (const auto card = MeetingCard::from(input)) {
    const auto again = MeetingCard::from(card->text());
    require(again && again->handles == card->handles && again->number == card->number,
            "a card is written and read the same");
  }
  if (const auto message = decode_elastic(input)) {
    const auto again = decode_elastic(encode(*message));
    require(again && again->handles == message->handles && again->kind == message->kind,
            "a message is written and read the same");
  }
  Program program;
  if (accepts(ErrorCode::invalid_argument, [&] { program = program_from_text(input); })) {
    const Program again = program_from_text(to_text(program));
    require(again.file == program.file, "a program is written and read the same");
    likeness(program, again);
  }
}

std::vector<std::string> seeds() {
  const UniqueId id =
      protocol::encode({*parse_address("127.0.0.1", 4711), protocol::Bytes32{std::byte{5}}});
  const UniqueId id6 =
      protocol::encode({*parse_address("::1", 1), protocol::Bytes32{std::byte{6}}});
  const Handle handle{"node7", 1234, 3, id};
  return {to_string(id),
          handle.text(),
          text_of_bytes(id6.bytes),
          MeetingCard{7, {handle.text(), "x"}}.text(),
          encode(ElasticMessage{ElasticMessage::Kind::members, 4, {"a", "b"}}),
          encode(ElasticMessage{ElasticMessage::Kind::offer, 4, {"a"}}),
          to_text(Program{0x12345678, {1, 2, 3}, {7, 9}, {}})};
}

const Registered target({"ids", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::ids
