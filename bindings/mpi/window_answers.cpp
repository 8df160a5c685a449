// What a member of a window answers to those of other hosts, with the mail's lock.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "bindings/mpi/error.h"
#include "bindings/mpi/window_access.h"
#include "bindings/mpi/window_question.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

std::unordered_map<std::uint64_t, Win*>& answering() {
  static auto* all = new std::unordered_map<std::uint64_t, Win*>;
  return *all;
}

/// Where the bytes lie; null where the window has no such memory.
std::byte* memory_at(const Win& win, std::int64_t offset, std::size_t bytes) {
  if (offset < 0) return nullptr;
  const auto from = static_cast<std::uint64_t>(offset);
  if (win.flavor != MPI_WIN_FLAVOR_DYNAMIC) {
    const auto size = static_cast<std::uint64_t>(win.bytes);
    return from <= size && bytes <= size - from ? static_cast<std::byte*>(win.base) + from
                                                : nullptr;
  }
  const bool is_there = std::ranges::any_of(win.attached, [&](const Win::Attached& a) {
    return from >= a.address && from - a.address <= a.bytes &&
           bytes <= a.bytes - (from - a.address);
  });
  return is_there ? reinterpret_cast<std::byte*>(from) : nullptr;  // NOLINT: the program's address
}

/// A question in its parts, all of them inside of the record and of the window.
struct Parsed {
  Question question;
  std::vector<Run> runs;
  std::vector<std::byte*> places;  // of the runs
  std::size_t bytes = 0;           // of them all
  std::span<const std::byte> data;
};

bool parse_runs(std::span<const std::byte> rest, const Win& win, Parsed& p) {
  if (p.question.runs > kMostRuns || rest.size() < p.question.runs * sizeof(Run)) return false;
  p.runs.resize(p.question.runs);
  if (!p.runs.empty()) std::memcpy(p.runs.data(), rest.data(), p.runs.size() * sizeof(Run));
  p.data = rest.subspan(p.runs.size() * sizeof(Run));
  for (const Run& run : p.runs) {
    if (static_cast<int>(run.element) >= kElements) return false;
    p.places.push_back(memory_at(win, run.offset, run.bytes));
    p.bytes += run.bytes;
    if (p.places.back() == nullptr || p.bytes > kMostData) return false;
  }
  return true;
}

void gather(const Parsed& p, std::byte* to) {
  for (std::size_t i = 0; i < p.runs.size(); ++i) {
    std::memcpy(to, p.places[i], p.runs[i].bytes);
    to += p.runs[i].bytes;
  }
}
void scatter(const Parsed& p, const std::byte* from) {
  for (std::size_t i = 0; i < p.runs.size(); ++i) {
    std::memcpy(p.places[i], from, p.runs[i].bytes);
    from += p.runs[i].bytes;
  }
}

void answer_with(std::vector<std::byte>& answer, Code error, std::span<const std::byte> data) {
  append(answer, std::span<const Code>(&error, 1));
  append(answer, data);
}

bool is_defined_on(const Operator& op, const Type& pairs) {
  try {
    op.check(pairs);
    return true;
  } catch (const Failure&) {
    return false;
  }
}

/// now = operand op now, both packed. False: the question makes no sense.
bool combine(const Parsed& p, std::vector<std::byte>& now) {
  const Operator* const op = operators().find(operators().numbered(p.question.op));
  if (op == nullptr || !op->predefined()) return false;
  if (op->kind() == Operator::Kind::no_op) return true;
  if (p.data.size() != p.bytes) return false;
  const std::vector<std::byte> operand(p.data.begin(), p.data.end());  // aligned
  if (p.question.pairs != kNoPairs) {
    const Type* const pairs = types().find(types().numbered(p.question.pairs));
    if (pairs == nullptr || !pairs->pair() || !is_defined_on(*op, *pairs) ||
        p.bytes % static_cast<std::size_t>(pairs->size()) != 0)
      return false;
    apply_to_pairs(*op, operand.data(), now.data(), p.bytes, *pairs);
    return true;
  }
  std::size_t at = 0;
  for (const Run& run : p.runs) {
    const std::size_t size = properties(run.element).size;
    if (run.bytes % size != 0 || !op->takes(run.element)) return false;
    op->apply_elements(operand.data() + at, now.data() + at,
                       static_cast<MPI_Count>(run.bytes / size), run.element);
    at += run.bytes;
  }
  return true;
}

/// Of combine and swap. False: another one changes the memory just now.
bool change(const Win& win, const Parsed& p, std::vector<std::byte>& answer) {
  std::atomic<std::int32_t>& held =
      win.parts[static_cast<std::size_t>(win.rank())].board->combining;
  std::int32_t free = 0;
  if (!held.compare_exchange_strong(free, 1, std::memory_order_acquire)) return false;
  std::vector<std::byte> now(p.bytes);
  gather(p, now.data());
  const std::vector<std::byte> before = now;
  bool good = true;
  if (p.question.wish == Wish::combine) {
    good = combine(p, now);
    if (good) scatter(p, now.data());
  } else {
    good = p.data.size() == 2 * p.bytes;
    if (good && std::memcmp(now.data(), p.data.data() + p.bytes, p.bytes) == 0)
      scatter(p, p.data.data());
  }
  held.store(0, std::memory_order_release);
  const bool wants_before = p.question.wish == Wish::swap || p.question.wants_before != 0;
  answer_with(
      answer, good ? MPI_SUCCESS : MPI_ERR_OP,
      good && wants_before ? std::span<const std::byte>(before) : std::span<const std::byte>());
  return true;
}

/// False: the lock is not free yet. `again`: this question waits for it already.
bool take_sign(Win& win, const Question& question, bool again) {
  Win::Part& own = win.parts[static_cast<std::size_t>(win.rank())];
  switch (question.sign) {
    case FarSign::lock_shared:
    case FarSign::lock_exclusive: {
      const bool exclusive = question.sign == FarSign::lock_exclusive;
      const bool held = try_lock(*own.board, exclusive);
      if (held == again) count_waiter(*own.board, exclusive, held ? -1 : 1);
      return held;
    }
    case FarSign::unlock_shared:
    case FarSign::unlock_exclusive:
      release_lock(win, win.rank(), question.sign == FarSign::unlock_exclusive);
      return true;
    case FarSign::posted:
      own.meeting(question.rank).posted.fetch_add(1);
      break;
    case FarSign::completed:
      own.meeting(question.rank).completed.fetch_add(1);
      break;
  }
  world().mail().ring();
  return true;
}

bool answer_question(int process, std::span<const std::byte> text, bool again,
                     std::vector<std::byte>& answer) {
  Parsed p;
  if (text.size() < sizeof p.question) {
    answer_with(answer, MPI_ERR_INTERN, {});
    return true;
  }
  std::memcpy(&p.question, text.data(), sizeof p.question);
  const auto found = answering().find(p.question.window);
  Win* const win = found == answering().end() ? nullptr : found->second;
  if (win == nullptr || win->comm->group->rank_of(process) != p.question.rank) {
    answer_with(answer, MPI_ERR_WIN, {});
    return true;
  }
  if (!parse_runs(text.subspan(sizeof p.question), *win, p)) {
    answer_with(answer, MPI_ERR_RMA_RANGE, {});
    return true;
  }
  switch (p.question.wish) {
    case Wish::read: {
      std::vector<std::byte> data(p.bytes);
      gather(p, data.data());
      answer_with(answer, MPI_SUCCESS, data);
      return true;
    }
    case Wish::write:
      if (p.data.size() == p.bytes) scatter(p, p.data.data());
      answer_with(answer, p.data.size() == p.bytes ? MPI_SUCCESS : MPI_ERR_COUNT, {});
      return true;
    case Wish::combine:
    case Wish::swap:
      return change(*win, p, answer);
    case Wish::sign:
      if (!take_sign(*win, p.question, again)) return false;
      answer_with(answer, MPI_SUCCESS, {});
      return true;
  }
  answer_with(answer, MPI_ERR_INTERN, {});
  return true;
}

}  // namespace

void answer_far(Win& win) {
  Mail& mail = world().mail();
  const Mail::Lock lock(mail);
  answering()[win.comm->context] = &win;
  mail.begin_answers(answer_question);
}

void end_answers(Win& win) {
  Mail& mail = world().mail();
  const Mail::Lock lock(mail);
  if (answering().erase(win.comm->context) > 0) mail.end_answers();
}

}  // namespace tutti::mpi
