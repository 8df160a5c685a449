#include "parallel/pipeline/text.h"

#include <fmt/format.h>

#include <iterator>

#include "core/error.h"
#include "core/line.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {
namespace {

constexpr std::size_t kActionsInALine = 16;

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(text, "schedule text") {}

  Schedule parse() {
    Line first = lines_.expect_next("'tutti schedule 1'");
    for (const std::string_view word : {"tutti", "schedule", "1"}) first.expect(word);
    first.expect_end();
    Line header = lines_.expect_next("a name and 'ranks'");
    parse_header(header);
    while (std::optional<Line> line = lines_.next()) {
      if (line->take("rank ") || line->take("rank\t")) {
        parse_rank(*line);
      } else {
        if (s_.actions.empty()) line->fail("'rank 0'");
        while (!line->at_end()) parse_action(*line);
      }
    }
    if (s_.ranks() != ranks_) {
      lines_.at_end().complain(
          fmt::format("expected 'rank {}', found the end of the text (the header says ranks {})",
                      s_.ranks(), ranks_));
    }
    for (int stage = 0; stage < s_.stages(); ++stage) {
      if (s_.rank_of(stage) >= 0) continue;
      lines_.at_end().complain(
          fmt::format("no rank has stage {} (the header says stages {})", stage, s_.stages()));
    }
    return std::move(s_);
  }

 private:
  static int number(Line& line, std::string_view what, int least, int most) {
    return static_cast<int>(
        line.number(what, static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most)));
  }

  void parse_header(Line& line) {
    const std::string_view name = line.word();
    if (!is_word(name)) line.fail("a name, one word of at most 64 letters");
    s_.name = name;
    line.expect("ranks");
    ranks_ = number(line, "the number of ranks", 1, Limits::ranks);
    line.expect("stages");
    const int stages = number(line, "the number of stages", 1, Limits::stages);
    s_.placement.assign(index(stages), -1);
    line.expect("micro-batches");
    s_.micro_batches = number(line, "the number of micro-batches", 1, Limits::micro_batches);
    line.expect("buffers");
    s_.buffers = number(line, "the number of buffers at each end of a link", 1, Limits::buffers);
    line.expect("live");
    s_.live = number(line, "the most activations of a rank", 1, Limits::live);
    line.expect_end();
  }

  void parse_rank(Line& line) {
    const std::string_view rest = line.rest();
    if (number(line, "a rank", 0, ranks_ - 1) != s_.ranks()) {
      line.fail_at(fmt::format("rank {} (ranks stand in order, each once)", s_.ranks()), rest);
    }
    line.expect("stages");
    while (!line.at_end()) {
      const std::string_view at = line.rest();
      int& rank = s_.placement[index(number(line, "a stage", 0, s_.stages() - 1))];
      if (rank >= 0) line.fail_at(fmt::format("a stage that is not on rank {}", rank), at);
      rank = s_.ranks();
    }
    s_.actions.emplace_back();
  }

  void parse_action(Line& line) {
    const std::string_view rest = line.rest();
    const auto fail = [&] {
      line.fail_at(fmt::format("an action: stage (0 to {}), F, B, I or W, micro-batch (0 to {})",
                               s_.stages() - 1, s_.micro_batches - 1),
                   rest);
    };
    if (rest[0] < '0' || rest[0] > '9') fail();
    Action a;
    a.stage = number(line, "a stage", 0, s_.stages() - 1);
    bool found = false;
    for (const Work work :
         {Work::forward, Work::backward, Work::backward_inputs, Work::backward_weights}) {
      const char c = letter(work);
      if (!line.take({&c, 1})) continue;
      a.work = work;
      found = true;
      break;
    }
    if (!found) fail();
    a.micro_batch = number(line, "a micro-batch", 0, s_.micro_batches - 1);
    if (++count_ > Limits::actions) {
      line.complain(fmt::format("there are more than {} actions", Limits::actions));
    }
    s_.actions.back().push_back(a);
  }

  Lines lines_;
  int ranks_ = 0;
  std::uint64_t count_ = 0;
  Schedule s_;
};

}  // namespace

std::string to_text(const Schedule& s) {
  if (!is_word(s.name)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cannot write a schedule that is named '{}': a name is one word of at "
                            "most 64 letters, digits, '_', '-' and '.'",
                            s.name));
  }
  std::vector<std::string> stages(s.actions.size());
  for (int stage = 0; stage < s.stages(); ++stage) {
    const int rank = s.rank_of(stage);
    if (rank < 0 || rank >= s.ranks()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("cannot write a schedule whose stage {} is on rank {} of {}", stage,
                              rank, s.ranks()));
    }
    stages[index(rank)] += fmt::format(" {}", stage);
  }
  std::string text = fmt::format(
      "tutti schedule 1\n{}  ranks {}  stages {}  micro-batches {}  buffers {}  live {}\n", s.name,
      s.ranks(), s.stages(), s.micro_batches, s.buffers, s.live);
  for (int r = 0; r < s.ranks(); ++r) {
    fmt::format_to(std::back_inserter(text), "rank {}  stages{}", r, stages[index(r)]);
    const auto& actions = s.actions[index(r)];
    for (std::size_t i = 0; i < actions.size(); ++i) {
      text += i % kActionsInALine == 0 ? "\n  " : " ";
      text += to_string(actions[i]);
    }
    text += '\n';
  }
  return text;
}

Schedule schedule_from_text(std::string_view text) { return Parser(text).parse(); }

}  // namespace tutti::parallel::pipeline
