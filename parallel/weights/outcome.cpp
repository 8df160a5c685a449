#include "parallel/weights/outcome.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/number.h"
#include "parallel/weights/meeting.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kLongestError = 900;  // bytes of an error's text that travel

std::string text_of_error(const Error& e) {
  return fmt::format("{} {} {}", static_cast<int>(e.code()), e.rank(),
                     std::string_view(e.what()).substr(0, kLongestError));
}

std::optional<Error> error_from(std::string_view text) {
  const auto code = parse_number<int>(take_word(text));
  const auto rank = parse_number<int>(take_word(text));
  if (!code || !rank) return std::nullopt;
  return Error(static_cast<ErrorCode>(*code), std::string(trimmed(text)), *rank);
}

int tells(const Error& e) {
  if (e.code() == ErrorCode::aborted) return 0;
  return e.rank() < 0 ? 1 : 2;
}

}  // namespace

Error named_error(const Error& error, int rank, std::string_view job) {
  return Error(
      error.code(),
      fmt::format("rank {} of the {} job ({}): {}", rank, job, name(error.code()), error.what()),
      rank);
}

std::optional<Error> death_in(const Error& error) {
  const std::string_view text = error.what();
  for (const char* const job : {"sending", "receiving"}) {
    const std::size_t end =
        text.find(fmt::format(" of the {} job ({})", job, name(ErrorCode::peer_lost)));
    if (end == text.npos) continue;
    const std::size_t begin = text.rfind(' ', end - 1) + 1;
    const auto rank = parse_number<int>(text.substr(begin, end - begin));
    if (rank && begin >= 5 && text.substr(begin - 5, 5) == "rank ") {
      return Error(ErrorCode::peer_lost, std::string(text.substr(begin - 5)), *rank);
    }
  }
  return std::nullopt;
}

std::optional<Error> agree_on_outcome(Communicator& job, const std::optional<Error>& mine,
                                      std::string_view which) {
  std::vector<std::string> texts;
  try {
    texts = from_all(job, mine ? text_of_error(*mine) : "");
  } catch (const Error& e) {
    if (e.rank() < 0) throw;
    throw named_error(e, e.rank(), which);
  }
  std::optional<Error> most;
  for (const std::string& text : texts) {
    const auto error = error_from(text);
    if (error && (!most || tells(*error) > tells(*most))) most = error;
  }
  return most;
}

}  // namespace tutti::parallel::weights
