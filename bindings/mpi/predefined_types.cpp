// The predefined data types, and the procedures that find one by its properties.
#include <array>
#include <cfloat>
#include <map>
#include <mutex>
#include <tuple>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/type.h"

namespace tutti::mpi {
namespace {

using E = Element;

struct TypeRow {
  MPI_Datatype handle;
  const char* name;
  Element element;
};

struct PairRow {
  MPI_Datatype handle;
  const char* name;
  Element value, index;
};

// clang-format off
#define TUTTI_ROW(type, element) {type, #type, E::element}
const TypeRow kTypes[] = {
    // C, by name
    TUTTI_ROW(MPI_CHAR, int8), TUTTI_ROW(MPI_SIGNED_CHAR, int8), TUTTI_ROW(MPI_UNSIGNED_CHAR, uint8),
    TUTTI_ROW(MPI_SHORT, int16), TUTTI_ROW(MPI_UNSIGNED_SHORT, uint16),
    TUTTI_ROW(MPI_INT, int32), TUTTI_ROW(MPI_UNSIGNED, uint32),
    TUTTI_ROW(MPI_LONG, c_long), TUTTI_ROW(MPI_UNSIGNED_LONG, c_unsigned_long),
    TUTTI_ROW(MPI_LONG_LONG_INT, int64), TUTTI_ROW(MPI_UNSIGNED_LONG_LONG, uint64),
    TUTTI_ROW(MPI_FLOAT, float32), TUTTI_ROW(MPI_DOUBLE, float64), TUTTI_ROW(MPI_LONG_DOUBLE, extended),
    TUTTI_ROW(MPI_C_BOOL, boolean), TUTTI_ROW(MPI_WCHAR, wide_character),
    TUTTI_ROW(MPI_C_COMPLEX, complex_float32), TUTTI_ROW(MPI_C_DOUBLE_COMPLEX, complex_float64),
    TUTTI_ROW(MPI_C_LONG_DOUBLE_COMPLEX, complex_extended),
    // C, by width
    TUTTI_ROW(MPI_INT8_T, int8), TUTTI_ROW(MPI_UINT8_T, uint8), TUTTI_ROW(MPI_INT16_T, int16),
    TUTTI_ROW(MPI_UINT16_T, uint16), TUTTI_ROW(MPI_INT32_T, int32), TUTTI_ROW(MPI_UINT32_T, uint32),
    TUTTI_ROW(MPI_INT64_T, int64), TUTTI_ROW(MPI_UINT64_T, uint64),
    // MPI's own
    TUTTI_ROW(MPI_BYTE, byte), TUTTI_ROW(MPI_PACKED, packed), TUTTI_ROW(MPI_AINT, int64),
    TUTTI_ROW(MPI_OFFSET, int64), TUTTI_ROW(MPI_COUNT, int64),
    // C++
    TUTTI_ROW(MPI_CXX_BOOL, boolean), TUTTI_ROW(MPI_CXX_FLOAT_COMPLEX, complex_float32),
    TUTTI_ROW(MPI_CXX_DOUBLE_COMPLEX, complex_float64), TUTTI_ROW(MPI_CXX_LONG_DOUBLE_COMPLEX, complex_extended),
    // Fortran, by name
    TUTTI_ROW(MPI_LOGICAL, logical4), TUTTI_ROW(MPI_INTEGER, int32), TUTTI_ROW(MPI_REAL, float32),
    TUTTI_ROW(MPI_DOUBLE_PRECISION, float64), TUTTI_ROW(MPI_COMPLEX, complex_float32),
    TUTTI_ROW(MPI_DOUBLE_COMPLEX, complex_float64), TUTTI_ROW(MPI_CHARACTER, text),
    // Fortran, by width
    TUTTI_ROW(MPI_LOGICAL1, logical1), TUTTI_ROW(MPI_LOGICAL2, logical2), TUTTI_ROW(MPI_LOGICAL4, logical4),
    TUTTI_ROW(MPI_LOGICAL8, logical8), TUTTI_ROW(MPI_LOGICAL16, logical16),
    TUTTI_ROW(MPI_INTEGER1, int8), TUTTI_ROW(MPI_INTEGER2, int16), TUTTI_ROW(MPI_INTEGER4, int32),
    TUTTI_ROW(MPI_INTEGER8, int64), TUTTI_ROW(MPI_INTEGER16, int128),
    TUTTI_ROW(MPI_REAL2, float16), TUTTI_ROW(MPI_REAL4, float32), TUTTI_ROW(MPI_REAL8, float64),
    TUTTI_ROW(MPI_REAL16, float128),
    TUTTI_ROW(MPI_COMPLEX4, complex_float16), TUTTI_ROW(MPI_COMPLEX8, complex_float32),
    TUTTI_ROW(MPI_COMPLEX16, complex_float64), TUTTI_ROW(MPI_COMPLEX32, complex_float128),
    TUTTI_ROW(MPIX_C_FLOAT16, float16), TUTTI_ROW(MPIX_BFLOAT16, bfloat16),
#ifdef TUTTI_MPI_OPENMPI
    {OMPI_C_COMPLEX, "MPI_C_COMPLEX", E::complex_float32},
    {OMPI_LONG_DOUBLE_COMPLEX, "MPI_C_LONG_DOUBLE_COMPLEX", E::complex_extended},
#endif
};

#define TUTTI_PAIR(type, value, index) {type, #type, E::value, E::index}
const PairRow kPairs[] = {
    TUTTI_PAIR(MPI_SHORT_INT, int16, int32), TUTTI_PAIR(MPI_2INT, int32, int32), TUTTI_PAIR(MPI_LONG_INT, c_long, int32),
    TUTTI_PAIR(MPI_FLOAT_INT, float32, int32), TUTTI_PAIR(MPI_DOUBLE_INT, float64, int32),
    TUTTI_PAIR(MPI_LONG_DOUBLE_INT, extended, int32), TUTTI_PAIR(MPI_2REAL, float32, float32),
    TUTTI_PAIR(MPI_2DOUBLE_PRECISION, float64, float64), TUTTI_PAIR(MPI_2INTEGER, int32, int32),
};
#undef TUTTI_ROW
#undef TUTTI_PAIR
// clang-format on

using TypeHandles = Handles<Type, MPI_Datatype>;

void define_all(TypeHandles& handles) {
  for (const TypeRow& row : kTypes)
    handles.predefine(row.handle, Type::predefined(row.name, row.element));
  for (const PairRow& row : kPairs) {
    handles.predefine(row.handle, Type::predefined_pair(row.name, row.value, row.index));
  }
}

}  // namespace

TypeHandles& types() {
  static TypeHandles& handles = []() -> TypeHandles& {
    auto* made = new TypeHandles;  // programs call in destructors, too
    define_all(*made);
    return *made;
  }();
  return handles;
}

MPI_Datatype predefined_handle(const Type& type) {
  const MPI_Datatype handle = types().predefined_handle(type, MPI_DATATYPE_NULL);
  if (handle == MPI_DATATYPE_NULL) fail(MPI_ERR_INTERN, "{} has no handle", type.name());
  return handle;
}

MPI_Datatype handle_of_pairs(const Type::Pair& pair) {
  for (const PairRow& row : kPairs) {
    if (row.value == pair.value && row.index == pair.index) return row.handle;
  }
  fail(MPI_ERR_INTERN, "no predefined type has such pairs");
}

TypeRef shared_type(MPI_Datatype type) {
  TypeRef object = types().share(type);
  if (object == nullptr) fail(MPI_ERR_TYPE, "the data type is null, was freed, or is none");
  return object;
}

Type& type_of(MPI_Datatype type) {
  Type* object = types().find(type);
  if (object == nullptr) fail(MPI_ERR_TYPE, "the data type is null, was freed, or is none");
  return *object;
}

Type& committed_type(MPI_Datatype handle) {
  Type& type = type_of(handle);
  if (!type.committed()) fail(MPI_ERR_TYPE, "the data type was not committed (MPI_Type_commit)");
  return type;
}

// --- Types by their properties

namespace {

struct Sized {
  int type_class;
  int size;
  MPI_Datatype handle;
};

const Sized kBySize[] = {
    {MPI_TYPECLASS_INTEGER, 1, MPI_INTEGER1},   {MPI_TYPECLASS_INTEGER, 2, MPI_INTEGER2},
    {MPI_TYPECLASS_INTEGER, 4, MPI_INTEGER4},   {MPI_TYPECLASS_INTEGER, 8, MPI_INTEGER8},
    {MPI_TYPECLASS_INTEGER, 16, MPI_INTEGER16}, {MPI_TYPECLASS_REAL, 2, MPI_REAL2},
    {MPI_TYPECLASS_REAL, 4, MPI_REAL4},         {MPI_TYPECLASS_REAL, 8, MPI_REAL8},
    {MPI_TYPECLASS_REAL, 16, MPI_REAL16},       {MPI_TYPECLASS_COMPLEX, 4, MPI_COMPLEX4},
    {MPI_TYPECLASS_COMPLEX, 8, MPI_COMPLEX8},   {MPI_TYPECLASS_COMPLEX, 16, MPI_COMPLEX16},
    {MPI_TYPECLASS_COMPLEX, 32, MPI_COMPLEX32},
};

MPI_Datatype of_size(int type_class, int size) {
  for (const Sized& row : kBySize) {
    if (row.type_class == type_class && row.size == size) return row.handle;
  }
  fail(MPI_ERR_ARG, "no type of class {} has {} bytes", type_class, size);
}

/// Bytes of the smallest float with so many decimal digits and such an exponent.
int real_size(int precision, int range) {
  struct Format {
    int digits, exponent, size;
  };
  constexpr Format kFormats[] = {
      {FLT_DIG, FLT_MAX_10_EXP, 4}, {DBL_DIG, DBL_MAX_10_EXP, 8}, {33, 4931, 16}};
  for (const Format& format : kFormats) {
    if ((precision == MPI_UNDEFINED || precision <= format.digits) &&
        (range == MPI_UNDEFINED || range <= format.exponent)) {
      return format.size;
    }
  }
  fail(MPI_ERR_ARG, "no type has {} decimal digits and the exponent {}", precision, range);
}

int integer_size(int range) {
  constexpr int kDigits[][2] = {{2, 1}, {4, 2}, {9, 4}, {18, 8}, {38, 16}};
  for (const auto& [digits, size] : kDigits) {
    if (range <= digits) return size;
  }
  fail(MPI_ERR_ARG, "no integer has {} decimal digits", range);
}

/// A type as another one, but that it says how it was asked for. Equal questions get the same
/// handle, which nobody frees.
MPI_Datatype parameterized(int combiner, std::vector<int> parameters, int type_class, int size) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::vector<int>>, MPI_Datatype> made;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = made.try_emplace({combiner, parameters}, MPI_DATATYPE_NULL);
  if (is_new) {
    const TypeRef same = shared_type(of_size(type_class, size));
    const TypeRef type = Type::of_blocks({{1, 0, same}}, Contents(combiner, std::move(parameters)));
    type->commit();
    place->second = types().add(type);
  }
  return place->second;
}

}  // namespace

int MPI_Type_match_size(int type_class, int size, MPI_Datatype* datatype) {
  return guarded("MPI_Type_match_size", On(), [&] { *datatype = of_size(type_class, size); });
}

int MPI_Type_create_f90_real(int precision, int range, MPI_Datatype* newtype) {
  return guarded("MPI_Type_create_f90_real", On(), [&] {
    const int size = real_size(precision, range);
    *newtype = parameterized(MPI_COMBINER_F90_REAL, {precision, range}, MPI_TYPECLASS_REAL, size);
  });
}

int MPI_Type_create_f90_complex(int precision, int range, MPI_Datatype* newtype) {
  return guarded("MPI_Type_create_f90_complex", On(), [&] {
    const int size = 2 * real_size(precision, range);
    *newtype =
        parameterized(MPI_COMBINER_F90_COMPLEX, {precision, range}, MPI_TYPECLASS_COMPLEX, size);
  });
}

int MPI_Type_create_f90_integer(int range, MPI_Datatype* newtype) {
  return guarded("MPI_Type_create_f90_integer", On(), [&] {
    *newtype = parameterized(MPI_COMBINER_F90_INTEGER, {range}, MPI_TYPECLASS_INTEGER,
                             integer_size(range));
  });
}

namespace {
/// Pairs of two numbers of Fortran's, which are none of C's types of the same width.
const std::pair<MPI_Datatype, MPI_Datatype> kFortranPairs[] = {
    {MPI_REAL, MPI_2REAL},
    {MPI_DOUBLE_PRECISION, MPI_2DOUBLE_PRECISION},
    {MPI_INTEGER, MPI_2INTEGER},
};
}  // namespace

int MPI_Type_get_value_index(MPI_Datatype value, MPI_Datatype index, MPI_Datatype* pair) {
  return guarded("MPI_Type_get_value_index", On(), [&] {
    const auto first = type_of(value).element(), second = type_of(index).element();
    *pair = MPI_DATATYPE_NULL;
    for (const auto& [part, both] : kFortranPairs) {
      if (value == part && index == part) *pair = both;
    }
    for (const PairRow& row : kPairs) {
      if (row.index == E::int32 && row.value == first && row.index == second &&
          *pair == MPI_DATATYPE_NULL)
        *pair = row.handle;
    }
  });
}

}  // namespace tutti::mpi
