# SPDX-License-Identifier: Apache-2.0
"""A Django project in one file: a template with a loop and filters, on Django's own threaded server. argv[1] is the
folder of Django, argv[2] the port."""
import sys

sys.path.insert(0, sys.argv[1])

from django.conf import settings # noqa: E402

PAGE = ("{% for i in items %}<li>{{ i.name|upper }}: {{ i.value|add:3 }}"
        "{% if i.even %} even{% endif %}</li>{% endfor %}")
settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="none",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"])

import django # noqa: E402
from django.core.handlers.wsgi import WSGIHandler # noqa: E402
from django.core.servers.basehttp import run # noqa: E402
from django.http import HttpResponse # noqa: E402
from django.template import engines # noqa: E402
from django.urls import path # noqa: E402


def page(request):
    items = [{"name": f"item {i}", "value": i * i, "even": i % 2 == 0} for i in range(100)]
    return HttpResponse(engines["django"].from_string(PAGE).render({"items": items}, request))


urlpatterns = [path("", page)]
if __name__ == "__main__":
    django.setup()
    run("127.0.0.1", int(sys.argv[2]), WSGIHandler(), threading=True)
