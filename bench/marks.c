/* Marks in a run under callgrind: `mark(name)` writes what was executed since the last mark as a dump of that name.
 *
 * Nothing is written before the first SIGUSR2, nor between the second and the third, and so on.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <signal.h>
#include <valgrind/callgrind.h>

static volatile sig_atomic_t is_on;

static void flip(int number) {
    (void)number;
    is_on = !is_on;
}

static PyObject *mark(PyObject *self, PyObject *name) {
    (void)self;
    if (is_on)
        CALLGRIND_DUMP_STATS_AT(PyUnicode_AsUTF8(name));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"mark", mark, METH_O, "Write a dump."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "marks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_marks(void) {
    signal(SIGUSR2, flip);
    return PyModule_Create(&definition);
}
