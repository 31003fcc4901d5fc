# SPDX-License-Identifier: Apache-2.0
"""A small Flask application: a template, JSON, a few thousand objects a request."""
import sys

import flask

app = flask.Flask(__name__)
PAGE = "<ul>{% for i in items %}<li>{{ i.name|upper }}: {{ i.value }}</li>{% endfor %}</ul>"


@app.route("/")
def page():
    items = [{"name": f"item {i}", "value": i * i} for i in range(200)]
    return flask.render_template_string(PAGE, items=items)


@app.route("/json")
def json():
    return flask.jsonify({str(i): list(range(i)) for i in range(50)})


app.run(port=int(sys.argv[1]), threaded=True)
