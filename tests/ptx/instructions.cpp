// What each instruction of PTX becomes.
#include "tests/ptx/decoder.h"

namespace tutti::ptx {
namespace {

std::vector<std::string> parts_of(const std::string& op) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t dot = op.find('.', begin);
    parts.push_back(op.substr(begin, dot - begin));
    if (dot == std::string::npos) return parts;
    begin = dot + 1;
  }
}

std::uint8_t width_of(std::string_view type) {
  if (type.ends_with("64")) return 8;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("16")) return 2;
  if (type.ends_with("8")) return 1;
  return 0;
}

}  // namespace

void Decoder::add(const Instruction& in, const std::map<const Function*, std::uint32_t>& first) {
  const std::vector<std::string> parts = parts_of(in.op);
  const std::string& base = parts[0];
  if (base == "bra") {
    Op& op = push(in, in.guard >= 0 ? Kind::branch : Kind::jump);
    op.target = starts_[label(*function_, in)];
    op.negated = in.negated;
    if (in.guard >= 0) op.operand[0] = slot(*function_, in.guard);
    return;
  }
  if (in.guard >= 0) fail(in, "only branches have predicates here");
  if (base == "call") return add_call(in, first);
  if (base == "ret") {
    push(in, Kind::ret);
  } else if (base == "exit" || base == "trap") {
    Op& op = push(in, Kind::ret);
    op.which = static_cast<std::uint8_t>(base == "exit" ? End::thread : End::fault);
  } else if (base == "mov" || base == "cvta") {
    add_move(in, parts);
  } else if (base == "ld" || base == "st" || base == "atom" || base == "red") {
    add_access(in, parts);
  } else if (base == "fence" || base == "membar") {
    add_fence(in, parts);
  } else if (base == "bar" || base == "barrier" || base == "vote" || base == "activemask") {
    add_meeting(in, parts);
  } else if (base == "shfl") {
    add_shuffle(in, parts);
  } else if (base == "nanosleep") {
    Op& op = push(in, Kind::jump);
    op.target = static_cast<std::uint32_t>(program_.ops.size());
  } else {
    const Operation* const found = find_operation(in.op);
    if (found == nullptr || in.operands.size() != found->sources + 1) fail(in, "is not known");
    std::int32_t from[4] = {};
    for (std::uint32_t k = 0; k < found->sources; ++k) from[k] = source(in, in.operands[k + 1]);
    Op& op = push(in, Kind::compute);
    op.compute = found->compute;
    op.operand[0] = destination(in, in.operands[0]);
    std::copy(from, from + found->sources, op.operand + 1);
  }
}

/// What is passed, the call, what comes back.
void Decoder::add_call(const Instruction& in,
                       const std::map<const Function*, std::uint32_t>& first) {
  const Function& f = *callee_of(in);
  const Operand* const results = f.results.empty() ? nullptr : &in.operands[0];
  const Operand& arguments = in.operands.back();
  if (arguments.parts.size() != f.parameters.size() ||
      (results != nullptr && results->parts.size() != f.results.size())) {
    fail(in, "has other operands than the function");
  }
  for (std::size_t k = 0; k < f.parameters.size(); ++k) {
    compute(in, "mov.b64", slot(f, f.numbers.at(f.parameters[k].name)),
            {source(in, arguments.parts[k])});
  }
  push(in, Kind::call).target = first.at(&f);
  for (std::size_t k = 0; k < f.results.size(); ++k) {
    compute(in, "mov.b64", destination(in, results->parts[k]),
            {slot(f, f.numbers.at(f.results[k].name))});
  }
}

void Decoder::add_move(const Instruction& in, const std::vector<std::string>& parts) {
  if (in.operands.size() != 2) fail(in, "has other operands");
  const Operand& to = in.operands[0];
  const Operand& from = in.operands[1];
  if (parts[0] == "cvta") {
    // Addresses of shared memory are generic ones, with kSharedWindow added (memory.h).
    const bool back = parts[1] == "to";
    const std::string& space = parts[back ? 2 : 1];
    if (space == "global") return compute(in, "mov.b64", destination(in, to), {source(in, from)});
    if (space != "shared") fail(in, "is not known");
    const std::uint64_t window = std::uint64_t{1} << 60;
    return compute(in, "add.u64", destination(in, to),
                   {source(in, from), constant(back ? ~window + 1 : window)});
  }
  if (to.kind == Operand::Kind::vector) {
    // The parts from the lowest bits on.
    const std::uint8_t width = width_of(parts[1]);
    const std::size_t n = to.parts.size();
    const std::size_t bits = 8 * width / n;
    const std::int32_t all = source(in, from);
    for (std::size_t k = 0; k < n; ++k) {
      const std::int32_t part = destination(in, to.parts[k]);
      if (k == 0) {
        compute(in, fmt::format("mov.b{}", bits), part, {all});
      } else {
        compute(in, fmt::format("shr.u{}", 8 * width), part, {all, constant(bits * k)});
        if (n > 2) fail(in, "has more than two parts");
      }
    }
    return;
  }
  if (from.kind == Operand::Kind::vector) {
    if (from.parts.size() != 2 || parts[1] != "b64") fail(in, "is not known");
    return compute(
        in, "bfi.b64", destination(in, to),
        {source(in, from.parts[1]), source(in, from.parts[0]), constant(32), constant(32)});
  }
  if (from.kind == Operand::Kind::special) {
    static const std::map<std::string, Special> names{{"%tid.x", Special::thread},
                                                      {"%ctaid.x", Special::block},
                                                      {"%nctaid.x", Special::blocks},
                                                      {"%ntid.x", Special::threads},
                                                      {"%globaltimer", Special::clock}};
    const auto found = names.find(from.name);
    if (found == names.end()) fail(in, fmt::format("{} is not known", from.name));
    Op& op = push(in, Kind::special);
    op.which = static_cast<std::uint8_t>(found->second);
    op.operand[0] = destination(in, to);
    return;
  }
  compute(in, in.op, destination(in, to), {source(in, from)});
}

void Decoder::add_access(const Instruction& in, const std::vector<std::string>& parts) {
  static const std::map<std::string, Space> spaces{
      {"global", Space::global}, {"shared", Space::shared}, {"param", Space::param}};
  static const std::map<std::string, Order> orders{
      {"weak", Order::weak},       {"relaxed", Order::relaxed}, {"acquire", Order::acquire},
      {"release", Order::release}, {"acq_rel", Order::both},    {"volatile", Order::relaxed}};
  static const std::map<std::string, Scope> scopes{
      {"cta", Scope::block}, {"gpu", Scope::gpu}, {"sys", Scope::system}};
  static const std::map<std::string, Exchange> exchanges{
      {"add", Exchange::add},   {"cas", Exchange::swap_if}, {"exch", Exchange::swap},
      {"min", Exchange::min},   {"max", Exchange::max},     {"and", Exchange::bit_and},
      {"or", Exchange::bit_or}, {"xor", Exchange::bit_xor}};
  Op proto;
  proto.kind = parts[0] == "ld" ? Kind::load : parts[0] == "st" ? Kind::store : Kind::exchange;
  if (proto.kind == Kind::exchange) {  // what it is if it says nothing else
    proto.order = Order::relaxed;
    proto.scope = Scope::gpu;
  }
  proto.returns = parts[0] == "atom";
  int exchange = -1;
  for (std::size_t k = 1; k < parts.size(); ++k) {
    const std::string& p = parts[k];
    if (const auto s = spaces.find(p); s != spaces.end()) {
      proto.space = s->second;
    } else if (const auto o = orders.find(p); o != orders.end()) {
      proto.order = o->second;
      if (p == "volatile") proto.scope = Scope::system;
    } else if (const auto c = scopes.find(p); c != scopes.end()) {
      proto.scope = c->second;
    } else if (p == "v2" || p == "v4") {
      proto.count = p == "v2" ? 2 : 4;
    } else if (k + 1 == parts.size() && width_of(p) != 0) {
      proto.bytes = width_of(p);
    } else if (proto.kind == Kind::exchange && exchanges.contains(p)) {
      exchange = static_cast<int>(exchanges.at(p));
      const bool is_signed = parts.back()[0] == 's';
      if (is_signed && p == "min") exchange = static_cast<int>(Exchange::smin);
      if (is_signed && p == "max") exchange = static_cast<int>(Exchange::smax);
    } else if (p != "cs") {  // a hint to the cache
      fail(in, fmt::format(".{} is not known", p));
    }
  }
  const bool strong = proto.order != Order::weak;
  if (strong && proto.scope == Scope::none) fail(in, "has no scope");
  if (strong && proto.bytes != 8) fail(in, "is strong, and not of 64 bits");
  if (proto.bytes == 0) fail(in, "has no type");
  const std::size_t address = proto.kind == Kind::store || parts[0] == "red" ? 0 : 1;
  if (in.operands.size() <= address) fail(in, "has too few operands");
  const Operand& memory = in.operands[address];
  if (memory.kind != Operand::Kind::memory) fail(in, "has no address");
  // Parameters of calls are registers.
  if (proto.space == Space::param && memory.reg >= 0 && memory.name[0] != '%') {
    if (proto.count != 1 || memory.number != 0) fail(in, "is no whole parameter");
    const std::string move = fmt::format("mov.b{}", 8 * proto.bytes);
    const std::int32_t parameter = slot(*function_, memory.reg);
    if (proto.kind == Kind::store)
      return compute(in, move, parameter, {source(in, in.operands[1])});
    return compute(in, move, destination(in, in.operands[0]), {parameter});
  }
  proto.offset = static_cast<std::int64_t>(memory.number);
  if (memory.reg >= 0) {
    proto.operand[0] = slot(*function_, memory.reg);
  } else {
    const auto found = symbols_.find(memory.name);
    if (found == symbols_.end()) fail(in, fmt::format("{} is unknown", memory.name));
    proto.operand[0] = constant(0);
    proto.offset += static_cast<std::int64_t>(found->second);
  }
  if (proto.kind == Kind::exchange) {
    const std::size_t sources = exchange == static_cast<int>(Exchange::swap_if) ? 2 : 1;
    if (exchange < 0 || in.operands.size() != address + 1 + sources) fail(in, "is not known");
    proto.which = static_cast<std::uint8_t>(exchange);
    if (proto.returns) proto.operand[1] = destination(in, in.operands[0]);
    for (std::size_t k = 0; k < sources; ++k) {
      proto.operand[2 + k] = source(in, in.operands[address + 1 + k]);
    }
  } else {
    if (in.operands.size() != 2) fail(in, "has other operands");
    const Operand& data = in.operands[1 - address];
    const std::vector<Operand> single{data};
    const std::vector<Operand>& all = proto.count > 1 ? data.parts : single;
    if (all.size() != proto.count) fail(in, "has another number of elements");
    for (std::size_t k = 0; k < all.size(); ++k) {
      proto.operand[1 + k] =
          proto.kind == Kind::load ? destination(in, all[k]) : source(in, all[k]);
    }
  }
  push_like(in, proto);
}

void Decoder::push_like(const Instruction& in, const Op& proto) {
  Op& op = push(in, proto.kind);
  const std::uint32_t line = op.line;
  const std::uint32_t from = op.source;
  op = proto;
  op.line = line;
  op.source = from;
}

void Decoder::add_fence(const Instruction& in, const std::vector<std::string>& parts) {
  Op proto;
  proto.kind = Kind::fence;
  proto.order = Order::both;
  for (std::size_t k = 1; k < parts.size(); ++k) {
    const std::string& p = parts[k];
    if (p == "sc") {
      proto.order = Order::sequential;
    } else if (p == "cta") {
      proto.scope = Scope::block;
    } else if (p == "gpu" || p == "gl") {
      proto.scope = Scope::gpu;
    } else if (p == "sys") {
      proto.scope = Scope::system;
    } else if (p != "acq_rel") {
      fail(in, "is not known");
    }
  }
  if (parts[0] == "membar") proto.order = Order::sequential;
  if (proto.scope == Scope::none) fail(in, "has no scope");
  program_.has_fences = true;
  push_like(in, proto);
}

void Decoder::add_meeting(const Instruction& in, const std::vector<std::string>& parts) {
  Op proto;
  const auto number = [&](std::size_t k) {
    if (in.operands[k].kind != Operand::Kind::number) fail(in, "names no barrier by number");
    return static_cast<std::uint32_t>(in.operands[k].number);
  };
  if ((in.op == "bar.sync" || in.op == "barrier.sync") && in.operands.size() == 1 &&
      number(0) == 0) {
    proto.kind = Kind::barrier;
  } else if ((in.op == "bar.red.and.pred" || in.op == "bar.red.or.pred") &&
             in.operands.size() == 3 && number(1) == 0) {
    proto.kind = Kind::barrier;
    proto.which = static_cast<std::uint8_t>(parts[2] == "and" ? Reduce::all : Reduce::any);
    proto.operand[0] = destination(in, in.operands[0]);
    proto.operand[1] = source(in, in.operands[2]);
  } else if (in.op == "bar.warp.sync" && in.operands.size() == 1) {
    proto.kind = Kind::meet;
    proto.operand[2] = source(in, in.operands[0]);
  } else if (parts[0] == "vote" && parts.size() == 4 && parts[1] == "sync" &&
             in.operands.size() == 3) {
    proto.kind = Kind::vote;
    static const std::map<std::string, Vote> votes{
        {"any", Vote::any}, {"all", Vote::all}, {"uni", Vote::uniform}, {"ballot", Vote::ballot}};
    const auto found = votes.find(parts[2]);
    if (found == votes.end()) fail(in, "is not known");
    proto.which = static_cast<std::uint8_t>(found->second);
    proto.operand[0] = destination(in, in.operands[0]);
    proto.operand[1] = source(in, in.operands[1]);
    proto.operand[2] = source(in, in.operands[2]);
  } else if (in.op == "activemask.b32" && in.operands.size() == 1) {
    proto.kind = Kind::active;
    proto.operand[0] = destination(in, in.operands[0]);
  } else {
    fail(in, "is not known");
  }
  push_like(in, proto);
}

/// `shfl.sync.mode.b32 d|p, a, b, c, mask`; operands: d, a, mask (as of a vote), b, c, p.
void Decoder::add_shuffle(const Instruction& in, const std::vector<std::string>& parts) {
  static const std::map<std::string, Shuffle> modes{{"up", Shuffle::up},
                                                    {"down", Shuffle::down},
                                                    {"bfly", Shuffle::butterfly},
                                                    {"idx", Shuffle::index}};
  if (parts.size() != 4 || parts[1] != "sync" || !modes.contains(parts[2]) || parts[3] != "b32" ||
      in.operands.size() != 5) {
    fail(in, "is not known");
  }
  Op proto;
  proto.kind = Kind::shuffle;
  proto.which = static_cast<std::uint8_t>(modes.at(parts[2]));
  const Operand& to = in.operands[0];
  proto.returns = to.kind == Operand::Kind::vector;
  proto.operand[0] = destination(in, proto.returns ? to.parts[0] : to);
  proto.operand[1] = source(in, in.operands[1]);
  proto.operand[2] = source(in, in.operands[4]);
  proto.operand[3] = source(in, in.operands[2]);
  proto.operand[4] = source(in, in.operands[3]);
  proto.operand[5] = proto.returns ? destination(in, to.parts[1]) : proto.operand[0];
  push_like(in, proto);
}

}  // namespace tutti::ptx
