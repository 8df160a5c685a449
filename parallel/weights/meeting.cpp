#include "parallel/weights/meeting.h"

#include <fmt/format.h>
#include <tutti/core/background.h>
#include <tutti/core/error.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

#include "core/number.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::string_view kFirstLine = "tutti-weights-1";
constexpr std::size_t kMostRanks = 1 << 20;
constexpr std::size_t kLongestText = std::size_t{1} << 30;
constexpr std::size_t kCell = 1024;  // of a rank's text: its length in 8 bytes, and the text
constexpr auto kLook = std::chrono::milliseconds(10);

std::uint64_t random_number() {
  std::random_device device;
  const std::uint64_t high = device(), low = device();
  return ((high << 32 | low) & 0x7fff'ffff'ffff'ffff) | 1;
}

}  // namespace

std::string MeetingCard::text() const {
  std::string text = fmt::format("{} {} {}\n", kFirstLine, number, handles.size());
  for (const std::string& handle : handles) text += handle + "\n";
  return text;
}

std::optional<MeetingCard> MeetingCard::from(std::string_view text) {
  MeetingCard card;
  if (take_word(text) != kFirstLine) return std::nullopt;
  const auto number = parse_number<std::uint64_t>(take_word(text));
  const auto ranks = parse_number<std::size_t>(take_word(text));
  if (!number || !ranks || *number == 0 || *ranks == 0 || *ranks > kMostRanks) return std::nullopt;
  card.number = *number;
  for (std::size_t r = 0; r < *ranks; ++r) {
    card.handles.emplace_back(take_word(text));
    if (card.handles.back().empty()) return std::nullopt;
  }
  if (!take_word(text).empty()) return std::nullopt;
  return card;
}

std::string from_rank(Communicator& comm, int root, const std::function<std::string()>& body) {
  std::string text;
  std::optional<Error> error;
  if (comm.rank() == root) {
    try {
      text = body();
    } catch (const Error& e) {
      error = e;
      text = e.what();
    }
  }
  std::array<std::uint64_t, 2> said{error ? static_cast<std::uint64_t>(error->code()) : 0,
                                    text.size()};
  comm.broadcast(said.data(), said.data(), said.size(), DataType::uint64, root);
  if (said[1] > kLongestText) {
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} sends a text of {} bytes, and {} are the most", root, said[1],
                            kLongestText),
                root);
  }
  text.resize(said[1]);
  if (!text.empty()) comm.broadcast(text.data(), text.data(), text.size(), DataType::uint8, root);
  if (error) throw *error;
  if (said[0] != 0) throw Error(static_cast<ErrorCode>(said[0]), text);
  return text;
}

std::vector<std::string> from_all(Communicator& comm, const std::string& text) {
  if (text.size() + 8 > kCell) {
    throw Error(ErrorCode::internal, fmt::format("a text of {} bytes for the other ranks is too "
                                                 "long; this is a bug in Tutti",
                                                 text.size()));
  }
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<char> own(kCell), all(ranks * kCell);
  const std::uint64_t size = text.size();
  std::memcpy(own.data(), &size, sizeof size);
  std::memcpy(own.data() + sizeof size, text.data(), text.size());
  comm.all_gather(own.data(), all.data(), kCell, DataType::uint8);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::uint64_t length = 0;
    std::memcpy(&length, all.data() + r * kCell, sizeof length);
    length = std::min<std::uint64_t>(length, kCell - sizeof length);
    texts.emplace_back(all.data() + r * kCell + sizeof length, length);
  }
  return texts;
}

bool all_say_yes(Communicator& comm, bool yes) {
  std::uint64_t said = yes ? 1 : 0;
  comm.all_reduce(&said, &said, 1, DataType::uint64, ReduceKind::min);
  return said == 1;
}

Meetings::Meetings(Communicator& job, std::shared_ptr<Place> place,
                   std::chrono::nanoseconds patience)
    : job_(&job), place_(std::move(place)), patience_(patience) {
  if (place_ == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "two jobs need a place where they meet: folder_place(path), for instance");
  }
}

Options Meetings::options() const {
  Options options = job_->options();
  options.rendezvous_timeout = patience_;
  return options;
}

/// All ranks of this job have the new communicator, or none has.
std::optional<Communicator> Meetings::meet(Communicator& link,
                                           const std::vector<std::string>& handles,
                                           std::uint64_t number) {
  std::optional<Communicator> joint;
  try {
    joint = link.reconfigure(handles, number, options());
  } catch (const Error&) {
    if (must_stop()) throw;  // Ctrl-C
  }
  if (all_say_yes(*job_, joint.has_value())) return joint;
  if (joint) joint->abort("not all ranks of the two jobs have met");
  return std::nullopt;
}

std::optional<Meeting> Meetings::answer() {
  const auto asked = MeetingCard::from(from_rank(*job_, 0, [&]() -> std::string {
    const auto text = place_->read("ask");
    const auto card = text ? MeetingCard::from(*text) : std::nullopt;
    return card && card->number != tried_ ? *text : "";
  }));
  if (!asked) return std::nullopt;
  tried_ = asked->number;
  Communicator link = Communicator::alone(options());
  std::vector<std::string> all = from_all(*job_, link.handle());
  from_rank(*job_, 0, [&] {
    place_->write("answer", MeetingCard{tried_, all}.text());
    return std::string();
  });
  std::ranges::copy(asked->handles, std::back_inserter(all));
  auto joint = meet(link, all, tried_);
  if (!joint) return std::nullopt;
  return Meeting{std::move(*joint), job_->size()};
}

/// None: not before the deadline.
std::optional<MeetingCard> Meetings::await_answer(std::uint64_t number,
                                                  std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto text = place_->read("answer");
    const auto card = text ? MeetingCard::from(*text) : std::nullopt;
    if (card && card->number == number) return card;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    if (const auto error = job_->error()) throw *error;
    pause_for(kLook);
  }
}

Meeting Meetings::ask(std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    Communicator link = Communicator::alone(options());
    const MeetingCard mine{random_number(), from_all(*job_, link.handle())};
    const auto answer = MeetingCard::from(from_rank(*job_, 0, [&]() -> std::string {
      place_->write("ask", mine.text());
      const auto card = await_answer(mine.number, deadline);
      place_->remove("ask");
      return card ? card->text() : "";
    }));
    if (!answer) {
      throw Error(ErrorCode::timed_out,
                  "no sending job has answered at the place where the two jobs meet: is there one, "
                  "and does it call send()? Call receive() again to go on waiting");
    }
    std::vector<std::string> all = answer->handles;
    std::ranges::copy(mine.handles, std::back_inserter(all));
    auto joint = meet(link, all, answer->number);
    if (joint) return {std::move(*joint), static_cast<int>(answer->handles.size())};
  }
}

}  // namespace tutti::parallel::weights
